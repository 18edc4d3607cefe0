#include "cluster/wired_cluster.hpp"

#include <fmt/format.h>

#include "cluster/presets.hpp"

namespace weft {

ClusterSpec cluster_on(const Topology& topology) {
  const std::vector<std::int32_t> devices = topology.devices();
  ClusterSpec spec = parse_cluster(fmt::format("local:{},nic=10GB/s", devices.size()));
  spec.name = topology.name;
  // Equal runs of devices are nodes; otherwise every device is one.
  std::int64_t run = 0;
  while (run < std::ssize(devices) && topology.vertices[devices[run]].node == topology.vertices[devices[0]].node) ++run;
  bool even = std::ssize(devices) % run == 0;
  for (std::int64_t i = 0; even && i < std::ssize(devices); ++i) {
    const std::int64_t own = topology.vertices[devices[i]].node;
    const std::int64_t first = topology.vertices[devices[i / run * run]].node;
    even = own == first && (i < run || first != topology.vertices[devices[(i / run - 1) * run]].node);
  }
  if (even) {
    spec.devices_per_node = run;
    spec.nodes = std::ssize(devices) / run;
  }
  spec.topology = SharedTopology(topology);
  return spec;
}

}  // namespace weft
