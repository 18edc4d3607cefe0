// Tells groups of ranks apart by the links between them, so that what was simulated for one group of a class holds for
// all its groups.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "cluster/cluster.hpp"
#include "cluster/directed_links.hpp"

namespace weft {

class WiringSignatures {
 public:
  // Without a topology all groups have the same number. The cluster must outlive this.
  explicit WiringSignatures(const Cluster& cluster) : cluster_(cluster) {}

  // Returns equal numbers for two groups where messages between the i-th and the j-th member cross links of the same
  // rates, in the same shares, and meet on them in the same way, for all i and j: no program can tell such groups
  // apart. Groups that are alike may still get different numbers where their links stand in another order in the
  // topology.
  std::int32_t of(const std::vector<Rank>& members);

 private:
  const Way& way(Rank src, Rank dst);

  const Cluster& cluster_;
  std::map<std::pair<Rank, Rank>, Way> ways_;
  std::map<std::vector<double>, std::int32_t> numbers_;
};

}  // namespace weft
