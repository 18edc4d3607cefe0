// A wiring by itself as a cluster, for whoever simulates programs on it without a training step.
#pragma once

#include "cluster/cluster.hpp"
#include "cluster/topology.hpp"

namespace weft {

// The devices of a topology as a cluster, whose links are the topology's.
ClusterSpec cluster_on(const Topology& topology);

}  // namespace weft
