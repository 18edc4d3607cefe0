#include "exec/span_ring.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(SpanRing, MemoryIsBoundedWhateverTheNumberOfSteps) {
  EXPECT_EQ(SpanRing::steps_kept(20, 100), 20);                  // all of a short run
  EXPECT_EQ(SpanRing::steps_kept(1'000'000'000, 1 << 10), 128);  // 2^17 / 2^10
  EXPECT_EQ(SpanRing::steps_kept(1'000'000'000, 1'000'000), 8);  // of a huge plan: the fewest
  EXPECT_EQ(SpanRing::steps_kept(3, 1'000'000), 3);
}

TEST(SpanRing, KeepsTheLastStepsInOrder) {
  SpanRing ring(3, 2);
  for (std::int64_t step = 0; step < 5; ++step) {
    ring.clear(step);
    EXPECT_EQ(ring.of_step(step)[1].end, 0) << "what was there before counts for nothing";
    for (std::size_t i = 0; i < 2; ++i) ring.at(step, i).end = 10 * step + static_cast<std::int64_t>(i) + 1;
  }
  std::vector<std::int64_t> ends;
  for (const RankSpan& span : ring.in_order(5)) ends.push_back(span.end);
  EXPECT_EQ(ends, (std::vector<std::int64_t>{21, 22, 31, 32, 41, 42}));
  EXPECT_EQ(ring.in_order(2).size(), 4U) << "fewer have run than there is room for";
}

}  // namespace
}  // namespace weft
