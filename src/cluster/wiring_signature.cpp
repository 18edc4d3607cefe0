#include "cluster/wiring_signature.hpp"

#include "cluster/topology_way.hpp"

namespace weft {

const Way& WiringSignatures::way(Rank src, Rank dst) {
  const auto [entry, is_new] = ways_.try_emplace({src, dst});
  if (is_new) entry->second = wiring_way(cluster_, src, dst);
  return entry->second;
}

std::int32_t WiringSignatures::of(const std::vector<Rank>& members) {
  if (!cluster_.spec().topology) return 0;
  const std::vector<TopologyLink>& links = (*cluster_.spec().topology).links;
  std::map<std::int32_t, double> number_of;  // links in the order in which messages of the group meet them
  std::vector<double> facts;
  for (const Rank src : members) {
    for (const Rank dst : members) {
      if (src == dst) continue;
      const Way& crossed = way(src, dst);
      facts.push_back(static_cast<double>(crossed.latency.value));
      facts.push_back(static_cast<double>(crossed.links.size()));
      for (std::size_t i = 0; i < crossed.links.size(); ++i) {
        const auto found = number_of.try_emplace(crossed.links[i], static_cast<double>(number_of.size())).first;
        facts.push_back(found->second);
        facts.push_back(crossed.shares[i]);
        facts.push_back(links[crossed.links[i]].bandwidth.bytes_per_second);
      }
    }
  }
  return numbers_.try_emplace(std::move(facts), static_cast<std::int32_t>(numbers_.size())).first->second;
}

}  // namespace weft
