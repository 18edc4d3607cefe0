// Tells groups of ranks apart by the links between them, so that what was simulated for one group of a class holds for
// all its groups.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cluster/cluster.hpp"
#include "cluster/directed_links.hpp"

namespace weft {

// Larger clusters are not asked which groups meet: that takes too long to find out.
inline constexpr std::int64_t kMostRanksBeside = 128;

class WiringSignatures {
 public:
  // The cluster must outlive this.
  explicit WiringSignatures(const Cluster& cluster) : cluster_(cluster) {}

  // Returns equal numbers for two groups where messages between the i-th and the j-th member cross links of the same
  // rates, in the same shares, and meet on them in the same way, for all i and j, and for the groups beside them:
  // no program can tell such groups apart. Groups that are alike may still get different numbers where their links
  // stand in another order in the topology. Without a topology all groups have the same number.
  std::int32_t of(const std::vector<Rank>& members);

  // The groups with which a group shares links of the topology, of those that lie among the ranks as it does: ranks
  // are numbered along the axes of a mesh, so groups along the same axes are one group moved. They work at the same
  // time as a rule. Empty without a topology, or with too many ranks.
  std::vector<std::vector<Rank>> groups_beside(const std::vector<Rank>& members);

 private:
  const Way& way(Rank src, Rank dst);
  std::set<std::int32_t> links_of(const std::vector<Rank>& members);

  const Cluster& cluster_;
  std::map<std::pair<Rank, Rank>, Way> ways_;
  std::map<std::vector<double>, std::int32_t> numbers_;
  std::map<std::vector<Rank>, std::int32_t> known_;
};

}  // namespace weft
