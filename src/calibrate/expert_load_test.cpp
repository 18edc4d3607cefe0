#include "calibrate/expert_load.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(ExpertLoad, OfBalancedRanksIsOne) {
  const ExpertLoad load = load_of({{5, 5}, {5, 5}}, 10);
  EXPECT_DOUBLE_EQ(load.computed, 1);
  EXPECT_DOUBLE_EQ(load.exchanged, 1);
}

TEST(ExpertLoad, IsThatOfTheRankWithMost) {
  // Rank 0 gets 2 + 6 + 5 = 13 of 12 rows, 11 of them from others, who send each other 8 of their 12.
  const ExpertLoad load = load_of({{2, 1, 1}, {6, 3, 3}, {5, 2, 4}}, 12);
  EXPECT_DOUBLE_EQ(load.computed, 13.0 / 12);
  EXPECT_DOUBLE_EQ(load.exchanged, 11.0 / 8);
}

TEST(ExpertLoad, FallsWhereTokensAreDropped) {
  const ExpertLoad load = load_of({{4, 2}, {4, 2}}, 10);
  EXPECT_DOUBLE_EQ(load.computed, 0.8);
  EXPECT_DOUBLE_EQ(load.exchanged, 0.8);
}

TEST(ExpertLoad, OfOneRankHasNothingToExchange) {
  EXPECT_DOUBLE_EQ(load_of({{7}}, 10).exchanged, 1);
  EXPECT_DOUBLE_EQ(load_of({{7}}, 10).computed, 0.7);
}

}  // namespace
}  // namespace weft
