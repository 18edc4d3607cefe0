// The links that a message crosses, by direction: 2 i leaves the device at link i, 2 i + 1 enters it; of a half-duplex
// link only the first is used.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/cluster.hpp"

namespace weft {

struct Way {
  std::vector<std::int32_t> links;
  Nanos latency;
};
Way directed_links(const Cluster& cluster, Rank src, Rank dst);

}  // namespace weft
