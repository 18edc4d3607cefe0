// Which thread of a Chrome trace each span is drawn on. Slices of one thread must nest, so spans that overlap on a
// queue (measured ones may) go to lanes of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "timeline/timeline.hpp"

namespace weft {

struct TraceLanes {
  static constexpr std::int32_t kNotWritten = -1;
  std::vector<std::int32_t> tid;                  // by span; kNotWritten: its iteration is not asked for
  std::vector<std::vector<std::string>> threads;  // by rank: names; thread i has tid i + 1
  std::vector<std::int32_t> order;                // the written spans by rank, queue, start
};

// Iterations first..last, both included. The first lane of a queue carries the queue's name.
TraceLanes assign_lanes(const Timeline& timeline, std::int32_t first_iteration, std::int32_t last_iteration);

}  // namespace weft
