// A step at a glance, on steps laid out by hand.
#include "exec/step_glance.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

TEST(StepGlance, CountsTheTimeWithTransfersInWhichTheRankComputed) {
  // Compute 100..140 and 160..190, the next step at 200; transfers 130..165 and, on another queue, 150..170 and
  // 180..200. Step 100, busy 70; transfers under way 130..170 and 180..200: 60. Hidden 1 - 30 / 60.
  const std::vector<RankSpan> step = {{0, 100, 140}, {0, 130, 165}, {0, 150, 170}, {0, 160, 190}, {0, 180, 200}};
  StepGlancer glancer({0, 3}, {1, 2, 4});
  const StepGlance glance = glancer.look(step, {}, 200);
  EXPECT_EQ(glance.nanos, 100);
  EXPECT_DOUBLE_EQ(glance.hidden, 0.5);
  EXPECT_EQ(glancer.begin_of(step), 100);
}

TEST(StepGlance, IsNotANumberWithoutTransfers) {
  StepGlancer glancer({0}, {});
  EXPECT_TRUE(std::isnan(glancer.look(std::vector<RankSpan>{{0, 10, 30}}, {}, 40).hidden));
}

// Gaps that no transfer is to blame for may exceed all transfers; a transfer that has not ended counts for nothing.
TEST(StepGlance, StaysBetweenNothingAndAll) {
  StepGlancer glancer({0, 1}, {2, 3});
  const std::vector<RankSpan> gaps = {{0, 0, 10}, {0, 90, 100}, {0, 10, 20}, {0, 50, 0}};
  EXPECT_DOUBLE_EQ(glancer.look(gaps, {}, 100).hidden, 0);
  const std::vector<RankSpan> full = {{0, 0, 50}, {0, 50, 100}, {0, 10, 20}, {0, 0, 0}};
  EXPECT_DOUBLE_EQ(glancer.look(full, {}, 100).hidden, 1);
}

// Between the two computations the rank waits for another's, say; the transfer 10..20 hides all the same.
TEST(StepGlance, GapsWithoutTransfersExposeNothing) {
  StepGlancer glancer({0, 1}, {2});
  const std::vector<RankSpan> step = {{0, 0, 50}, {0, 90, 100}, {0, 10, 20}};
  EXPECT_DOUBLE_EQ(glancer.look(step, {}, 100).hidden, 1);
}

// Of 80..120 the step itself hides 10, and the next, which computes 105..115, another 10.
TEST(StepGlance, TransfersHideBehindTheNextStepToo) {
  StepGlancer glancer({0}, {1});
  const std::vector<RankSpan> step = {{0, 0, 90}, {0, 80, 120}}, next = {{0, 105, 115}, {0, 0, 0}};
  const StepGlance glance = glancer.look(step, next, 105);
  EXPECT_EQ(glance.nanos, 105);
  EXPECT_DOUBLE_EQ(glance.hidden, 0.5);
}

}  // namespace
}  // namespace weft
