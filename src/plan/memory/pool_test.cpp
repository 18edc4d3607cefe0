#include "plan/memory/pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft {
namespace {

// Does the slab hold its memory at a position, in this execution of the block or from the one before?
bool alive(const Slab& slab, std::int32_t position, std::int32_t length) {
  return (slab.first <= position && position <= slab.last) ||
         (slab.first <= position + length && position + length <= slab.last);
}

TEST(PackInTurns, NeverGivesTwoTheSameBytesAtOneTime) {
  std::mt19937_64 random(11);
  const auto below = [&](std::int32_t n) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    const std::int32_t length = 1 + below(30);
    std::vector<Slab> slabs(1 + below(12));
    for (Slab& slab : slabs) {
      slab.first = below(length);
      slab.last = slab.first + below(length);
      slab.size = 1 + below(50);
    }
    const std::int64_t base = below(100), highest = pack_in_turns(slabs, base, length);
    std::int64_t end = base, most = 0, all = 0;
    for (std::int32_t position = 0; position < length; ++position) {
      std::vector<const Slab*> now;
      for (const Slab& slab : slabs) {
        if (alive(slab, position, length)) now.push_back(&slab);
      }
      std::int64_t sum = 0;
      for (const Slab* a : now) {
        sum += a->size;
        for (const Slab* b : now) {
          EXPECT_TRUE(a == b || a->begin + a->size <= b->begin || b->begin + b->size <= a->begin);
        }
      }
      most = std::max(most, sum);
    }
    for (const Slab& slab : slabs) {
      EXPECT_GE(slab.begin, base);
      end = std::max(end, slab.begin + slab.size);
      all += slab.size;
    }
    EXPECT_EQ(highest, end);
    EXPECT_GE(highest - base, most);  // what lives at one time needs room
    EXPECT_LE(highest - base, all);
  }
}

// A row of units of which two neighbours live at a time, the last two into the first two of the next execution.
TEST(PackInTurns, NeedsTwoBuffersForUnitsThatTakeTurns) {
  for (std::int32_t units = 2; units <= 13; ++units) {
    std::vector<Slab> slabs;
    for (std::int32_t u = 0; u < units; ++u) {
      const std::int32_t last_of_buffer = units - 1 - u < 2 ? (u % 2 + units) : u + 2;
      slabs.push_back({u, last_of_buffer - 1, {}, 10, 0});
    }
    EXPECT_EQ(pack_in_turns(slabs, 0, units), 20) << units;
  }
}

}  // namespace
}  // namespace weft
