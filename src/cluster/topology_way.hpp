// The way of a message over the links of a topology.
#pragma once

#include "cluster/directed_links.hpp"
#include "cluster/topology.hpp"

namespace weft {

// Links are numbers into Topology::links. A message takes the ways with the fewest links through NICs, switches and
// hosts, all of them at once, each in proportion to what it carries (GPUs spread messages over all switches of a node).
// Only where no such way exists, other devices pass it on.
Way topology_way(const Topology& topology, Rank src, Rank dst);

// The bandwidth of all links that leave the device of a rank.
Bandwidth bandwidth_out_of(const Topology& topology, Rank rank);

// The wiring between some ranks, which become ranks 0, 1, ... in their order; other devices are left out, since a
// collective of the group cannot use them. Check with joins_all_devices whether links enough are left.
Topology between_ranks(const Topology& topology, const std::vector<Rank>& ranks);

// The same on the topology of a cluster, which it must have: ranks are on the devices of the cluster's map.
Way wiring_way(const Cluster& cluster, Rank src, Rank dst);
Bandwidth wiring_out_of(const Cluster& cluster, Rank rank);
Topology wiring_between(const Cluster& cluster, const std::vector<Rank>& ranks);

}  // namespace weft
