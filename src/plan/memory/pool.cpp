#include "plan/memory/pool.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/checked.hpp"

namespace weft {

std::int64_t pack_in_turns(std::vector<Slab>& slabs, std::int64_t base, std::int32_t length) {
  const auto meet = [length](const Slab& a, const Slab& b) {
    const auto shifted = [&](std::int32_t by) { return a.first + by <= b.last && b.first <= a.last + by; };
    return shifted(-length) || shifted(0) || shifted(length);
  };
  // Slabs of one size go in order of time: two buffers are then enough for layers of which two are there at a time.
  std::sort(slabs.begin(), slabs.end(), [](const Slab& a, const Slab& b) {
    return std::tuple(-a.size, a.first, a.last) < std::tuple(-b.size, b.first, b.last);
  });
  std::int64_t highest = base;
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;  // begin, end
  for (std::size_t i = 0; i < slabs.size(); ++i) {
    taken.clear();
    for (std::size_t j = 0; j < i; ++j) {
      if (meet(slabs[i], slabs[j])) taken.emplace_back(slabs[j].begin, slabs[j].begin + slabs[j].size);
    }
    std::sort(taken.begin(), taken.end());
    slabs[i].begin = base;
    for (const auto& [begin, end] : taken) {
      if (begin >= slabs[i].begin + slabs[i].size) break;
      slabs[i].begin = std::max(slabs[i].begin, end);
    }
    highest = std::max(highest, checked_sum({slabs[i].begin, slabs[i].size}, "memory of the plan"));
  }
  return highest;
}

}  // namespace weft
