// The directed links that a message crosses. Number 2 i is link i in the direction that leaves the device, 2 i + 1 the
// direction that enters it; a half-duplex link has only the first.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/cluster.hpp"

namespace weft {

struct Way {
  std::vector<std::int32_t> links;
  std::vector<double> shares = {};  // of the message on each link; empty: all of it on all of them
  Nanos latency;
};
Way directed_links(const Cluster& cluster, Rank src, Rank dst);

}  // namespace weft
