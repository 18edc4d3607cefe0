#include "cost/switch_time.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "cluster/topology_way.hpp"
#include "cluster/wired_cluster.hpp"

namespace weft {
namespace {

std::vector<SwitchRanks> ways_with(const Program& program, const Cluster& cluster, const std::vector<Rank>& members) {
  std::vector<SwitchRanks> ways = switch_ranks_for(wiring_between(cluster, members), program.spec.kind);
  std::erase_if(ways, [&](const SwitchRanks& way) { return std::ssize(way.names) != switches_of(program); });
  return ways;
}

std::vector<Rank> ranks_up_to(std::size_t count) {
  std::vector<Rank> ranks;
  for (std::size_t r = 0; r < count; ++r) ranks.push_back(make_id<Rank>(r));
  return ranks;
}

std::map<std::string, Rank> ranks_by_name(const Topology& topology) {
  std::map<std::string, Rank> ranks;
  for (const std::int32_t device : topology.devices()) {
    ranks.emplace(topology.vertices[device].name, make_id<Rank>(ranks.size()));
  }
  return ranks;
}

// All groups at once on the links between all of them, with one way for switches to take part. Nothing where a group's
// switches are not ranks there.
std::optional<Nanos> time_at_once(const SwitchRanks& all, const Program& program,
                                  const std::vector<LoweredRank>& lowered, const Cluster& cluster,
                                  const std::vector<std::vector<Rank>>& groups, const ProgramTimeOptions& options) {
  const std::map<std::string, Rank> rank_of = ranks_by_name(all.topology);
  std::vector<LoweredRank> programs;
  std::vector<Rank> ranks;
  for (const std::vector<Rank>& group : groups) {
    const std::vector<SwitchRanks> ways = ways_with(program, cluster, group);
    if (ways.empty()) return std::nullopt;
    const std::int64_t before = std::ssize(ranks);
    for (const std::int32_t device : ways.front().topology.devices()) {
      const auto found = rank_of.find(ways.front().topology.vertices[device].name);
      if (found == rank_of.end()) return std::nullopt;
      ranks.push_back(found->second);
    }
    for (LoweredRank rank : lowered) {
      for (LoweredStep& step : rank.steps) {
        if (step.peer >= 0) step.peer += before;
      }
      programs.push_back(std::move(rank));
    }
  }
  return program_time(programs, Cluster(cluster_on(all.topology)), ranks, options);
}

}  // namespace

Nanos switch_program_time(const Program& program, const std::vector<LoweredRank>& lowered, const Cluster& cluster,
                          const std::vector<Rank>& members, const ProgramTimeOptions& options) {
  std::optional<Nanos> fastest;
  for (const SwitchRanks& way : ways_with(program, cluster, members)) {
    const Nanos time = program_time(lowered, Cluster(cluster_on(way.topology)), ranks_up_to(lowered.size()), options);
    if (!fastest || time < *fastest) fastest = time;
  }
  WEFT_CHECK(fastest.has_value());
  return *fastest;
}

Nanos switch_program_time_beside(const Program& program, const std::vector<LoweredRank>& lowered,
                                 const Cluster& cluster, const std::vector<std::vector<Rank>>& groups,
                                 const ProgramTimeOptions& options) {
  const Nanos in_turn = switch_program_time(program, lowered, cluster, groups.front(), options) * std::ssize(groups);
  if (groups.size() == 1) return in_turn;
  std::vector<Rank> everybody;
  for (const std::vector<Rank>& group : groups) everybody.insert(everybody.end(), group.begin(), group.end());
  std::optional<Nanos> fastest;
  for (const SwitchRanks& all : switch_ranks_for(wiring_between(cluster, everybody), program.spec.kind)) {
    const auto time = time_at_once(all, program, lowered, cluster, groups, options);
    if (time && (!fastest || *time < *fastest)) fastest = time;
  }
  return std::min(fastest.value_or(in_turn), in_turn);
}

}  // namespace weft
