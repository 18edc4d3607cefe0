#include "collective/synthesis/switch_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cluster/topology_way.hpp"
#include "collective/synthesis/tree_packing.hpp"

namespace weft {
namespace {

std::vector<bool> able_switches(const Topology& topology, Collective kind) {
  std::vector<bool> able;
  for (const TopologyVertex& vertex : topology.vertices) {
    const bool copies = vertex.multicasts || kind == Collective::reduce_scatter;
    const bool sums = vertex.reduces || kind == Collective::all_gather;
    able.push_back(vertex.kind == VertexKind::network_switch && copies && sums);
  }
  return able;
}

SwitchRanks with_ranks_for(const Topology& topology, const std::vector<bool>& takes_part) {
  const std::vector<std::int32_t> like = like_switches(topology);
  std::map<std::int32_t, std::vector<std::int32_t>> groups;  // of like switches, by what they are like
  SwitchRanks result{{topology.name, {}, {}}, {}};
  std::vector<std::int32_t> place(topology.vertices.size());
  for (std::size_t i = 0; i < place.size(); ++i) {
    const auto vertex = static_cast<std::int32_t>(i);
    if (takes_part[i]) {
      groups[like[i]].push_back(vertex);
    } else {
      place[i] = result.topology.add(topology.vertices[i]);
    }
  }
  for (const auto& [first, group] : groups) {
    TopologyVertex rank = topology.vertices[group.front()];
    rank.kind = VertexKind::device;
    result.names.push_back(group.size() == 1 ? rank.name
                                             : fmt::format("{} and {} like it", rank.name, group.size() - 1));
    const std::int32_t own = result.topology.add(std::move(rank));
    for (const std::int32_t vertex : group) place[vertex] = own;
  }
  for (const TopologyLink& link : topology.links) {
    if (place[link.from] == place[link.to]) continue;  // between like switches
    result.topology.connect_one_way(place[link.from], place[link.to], link.bandwidth, link.latency);
  }
  return result;
}

}  // namespace

std::vector<SwitchRanks> switch_ranks_for(const Topology& topology, Collective kind) {
  const std::vector<bool> able = able_switches(topology, kind);
  std::vector<bool> within = able, between = able;
  for (std::size_t i = 0; i < able.size(); ++i) {
    (topology.vertices[i].node >= 0 ? between : within)[i] = false;
  }
  const auto any = [](const std::vector<bool>& of) { return std::ranges::find(of, true) != of.end(); };
  std::vector<SwitchRanks> ways;
  if (any(able)) ways.push_back(with_ranks_for(topology, able));
  if (any(within) && any(between)) {
    ways.push_back(with_ranks_for(topology, within));
    ways.push_back(with_ranks_for(topology, between));
  }
  return ways;
}

bool has_program_in_switches(const Topology& topology, Collective kind) {
  const std::vector<bool> able = able_switches(topology, kind);
  return std::ranges::find(able, true) != able.end();
}

std::string_view what_switches_must_do(Collective kind) {
  if (kind == Collective::all_gather) return "multicasts";
  return kind == Collective::reduce_scatter ? "reduces" : "reduces and multicasts";
}

std::int64_t switches_of(const Program& program) {
  return std::ssize(program.ranks) - program.spec.ranks;
}

std::string switch_fault(const Program& program, const Cluster& cluster, const std::vector<Rank>& members) {
  const std::int64_t switches = switches_of(program);
  if (switches == 0) return "";
  const std::string needs =
      fmt::format("it has steps in {} switch{}", switches, switches == 1 ? "" : "es that are wired differently");
  if (members.size() < 2) return needs + ", and its group is too large for that";
  if (!cluster.spec().topology) return needs + ", and the cluster has no topology that says which";
  const Topology wiring = wiring_between(cluster, members);
  const auto ways = switch_ranks_for(wiring, program.spec.kind);
  const auto fits = [&](const SwitchRanks& way) { return std::ssize(way.names) == switches; };
  if (std::ranges::any_of(ways, fits)) return "";
  return fmt::format("{}, but between ranks {} and {} of '{}' {}", needs, members.front().value, members.back().value,
                     wiring.name,
                     ways.empty() ? fmt::format("no switch {}", what_switches_must_do(program.spec.kind))
                                  : fmt::format("there are {}", ways.front().names.size()));
}

Topology without_switch_abilities(Topology topology) {
  for (TopologyVertex& vertex : topology.vertices) vertex.multicasts = vertex.reduces = false;
  return topology;
}

}  // namespace weft
