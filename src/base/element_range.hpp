// Consecutive elements of a tensor or of a parameter.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft {

struct ElementRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

inline ElementRange overlap(ElementRange a, ElementRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace weft
