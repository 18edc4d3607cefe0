#include "cluster/directed_links.hpp"

#include <algorithm>

namespace weft {

Way directed_links(const Cluster& cluster, Rank src, Rank dst) {
  Way way;
  const LevelId fabric = cluster.common_fabric(src, dst);
  for (const LinkId link : cluster.path(fabric, src)) {
    way.links.push_back(2 * link.value);
    way.latency += cluster.links()[link.index()].latency;
  }
  for (const LinkId link : cluster.path(fabric, dst)) {
    const bool half = cluster.links()[link.index()].duplex == Duplex::half;
    const std::int32_t entering = 2 * link.value + (half ? 0 : 1);
    // Two devices behind the same half-duplex link cross it once.
    if (std::find(way.links.begin(), way.links.end(), entering) == way.links.end()) way.links.push_back(entering);
  }
  return way;
}

}  // namespace weft
