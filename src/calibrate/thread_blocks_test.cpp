#include "calibrate/thread_blocks.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

// 10 s of compute take 12 s beside transfers; of 20 s of transfers 12 / 1.5 = 8 s are done by then, and 12 s are left.
TEST(HiddenStep, EndsWithWhatIsLeftOfTheLonger) {
  EXPECT_DOUBLE_EQ(hidden_step_seconds(10, 20, 0.2, 0.5), 24);
  // 4 s of transfers take 6 s; of compute 6 / 1.2 = 5 s are done by then.
  EXPECT_DOUBLE_EQ(hidden_step_seconds(10, 4, 0.2, 0.5), 11);
  EXPECT_DOUBLE_EQ(hidden_step_seconds(10, 20, 0, 0), 20);
  EXPECT_DOUBLE_EQ(hidden_step_seconds(10, 0, 0.2, 0.5), 10);
}

// With little to transfer the one that disturbs compute least is best, with much the fastest.
TEST(ThreadBlocks, AreChosenForTheStep) {
  const std::vector<TransferBeside> candidates = {{1.0, 0.4, 0}, {1.5, 0.1, 0}, {0.8, 0.8, 0}};
  EXPECT_EQ(best_beside(candidates, 100, 20), 1U);   // 105.7, 102.7, 107.1
  EXPECT_EQ(best_beside(candidates, 100, 300), 2U);  // 300, 450, 240
}

TEST(ThreadBlocks, StayTheLibrarysWhereNothingIsClearlyBetter) {
  EXPECT_EQ(best_beside({{1.0, 0, 0}, {0.99, 0, 0}}, 1, 100), 0U);
  EXPECT_EQ(best_beside({{1.0, 0, 0}, {0.9, 0, 0}}, 1, 100), 1U);
}

}  // namespace
}  // namespace weft
