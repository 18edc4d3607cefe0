#include "cluster/wiring_signature.hpp"

#include <algorithm>

#include "cluster/topology_way.hpp"

namespace weft {
namespace {

// All groups that are one group moved, in the order of their first ranks: the lowest rank that is in no group yet
// begins the next one, where the group fits there.
std::vector<std::vector<Rank>> moved_groups(const std::vector<Rank>& members, std::int64_t ranks) {
  const Rank first = *std::min_element(members.begin(), members.end());
  std::vector<bool> taken(static_cast<std::size_t>(ranks));
  std::vector<std::vector<Rank>> groups;
  for (std::int32_t start = 0; start < ranks; ++start) {
    std::vector<Rank> moved;
    for (const Rank member : members) {
      const std::int32_t at = member.value - first.value + start;
      if (at < ranks && !taken[at]) moved.push_back(Rank{at});
    }
    if (taken[start] || moved.size() != members.size()) continue;
    for (const Rank rank : moved) taken[rank.index()] = true;
    groups.push_back(std::move(moved));
  }
  return groups;
}

// What programs with steps in switches tell apart.
double abilities_of(const TopologyVertex& vertex) {
  return (vertex.multicasts ? 1.0 : 0.0) + (vertex.reduces ? 2.0 : 0.0);
}

}  // namespace

const Way& WiringSignatures::way(Rank src, Rank dst) {
  const auto [entry, is_new] = ways_.try_emplace({src, dst});
  if (is_new) entry->second = wiring_way(cluster_, src, dst);
  return entry->second;
}

std::set<std::int32_t> WiringSignatures::links_of(const std::vector<Rank>& members) {
  std::set<std::int32_t> links;
  for (const Rank src : members) {
    for (const Rank dst : members) {
      if (src == dst) continue;
      const Way& crossed = way(src, dst);
      links.insert(crossed.links.begin(), crossed.links.end());
    }
  }
  return links;
}

std::vector<std::vector<Rank>> WiringSignatures::groups_beside(const std::vector<Rank>& members) {
  std::vector<std::vector<Rank>> beside;
  if (!cluster_.spec().topology || members.size() < 2 || cluster_.device_count() > kMostRanksBeside) return beside;
  const std::vector<std::vector<Rank>> all = moved_groups(members, cluster_.device_count());
  if (std::find(all.begin(), all.end(), members) == all.end()) return beside;
  const std::set<std::int32_t> own = links_of(members);
  for (const std::vector<Rank>& other : all) {
    if (other == members) continue;
    const std::set<std::int32_t> links = links_of(other);
    const bool meets = std::any_of(links.begin(), links.end(), [&](std::int32_t link) { return own.contains(link); });
    if (meets) beside.push_back(other);
  }
  return beside;
}

std::int32_t WiringSignatures::of(const std::vector<Rank>& members) {
  if (!cluster_.spec().topology) return 0;
  const auto [known, is_new] = known_.try_emplace(members, 0);
  if (!is_new) return known->second;
  const std::vector<TopologyLink>& links = (*cluster_.spec().topology).links;
  std::map<std::int32_t, double> number_of;  // links in the order in which messages of the groups meet them
  std::vector<double> facts;
  std::vector<std::vector<Rank>> groups = groups_beside(members);
  groups.insert(groups.begin(), members);
  for (const std::vector<Rank>& group : groups) {
    for (const Rank src : group) {
      for (const Rank dst : group) {
        if (src == dst) continue;
        const Way& crossed = way(src, dst);
        facts.push_back(static_cast<double>(crossed.latency.value));
        facts.push_back(static_cast<double>(crossed.links.size()));
        for (std::size_t i = 0; i < crossed.links.size(); ++i) {
          const auto found = number_of.try_emplace(crossed.links[i], static_cast<double>(number_of.size())).first;
          facts.push_back(found->second);
          facts.push_back(crossed.shares[i]);
          facts.push_back(links[crossed.links[i]].bandwidth.bytes_per_second);
          facts.push_back(abilities_of((*cluster_.spec().topology).vertices[links[crossed.links[i]].to]));
        }
      }
    }
  }
  known->second = numbers_.try_emplace(std::move(facts), static_cast<std::int32_t>(numbers_.size())).first->second;
  return known->second;
}

}  // namespace weft
