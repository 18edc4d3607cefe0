// Lanes for slices that overlap: slices of one thread of a Chrome trace must nest.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/units.hpp"

namespace weft {

// First-fit by start time: the lowest lane that is free. O(log n) a slice.
class LaneAllocator {
 public:
  std::int32_t take(Nanos start, Nanos end) {
    while (!busy_.empty() && busy_.top().first <= start) {
      free_.push(busy_.top().second);
      busy_.pop();
    }
    if (free_.empty()) free_.push(count_++);
    const std::int32_t lane = free_.top();
    free_.pop();
    busy_.emplace(end, lane);
    return lane;
  }
  std::int32_t count() const { return count_; }

 private:
  template <class T>
  using LowestFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;
  LowestFirst<std::pair<Nanos, std::int32_t>> busy_;
  LowestFirst<std::int32_t> free_;
  std::int32_t count_ = 0;
};

}  // namespace weft
