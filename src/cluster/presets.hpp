// Known machines by name: `dgx-a100:16`, `dgx-a100:8,nic=800Gb/s`, `local:4,nic=200Mb/s`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/cluster.hpp"

namespace weft {

std::vector<std::string> cluster_preset_names();
// PRESET:NODES[,key=value...]; keys gpus= (devices a node), nvlink= (per device and direction), nic= (per node, all
// NICs together), memory= (of a device), device= (another profile). For `local` the number counts ranks, nic= is
// each rank's link, gpus= and nvlink= do not apply. For `gpu` it counts ranks too; link= (and latency=) make them
// partitions of one GPU with emulated links. Throws Error with the nearest name for an unknown preset or key.
ClusterSpec parse_cluster(std::string_view text);

}  // namespace weft
