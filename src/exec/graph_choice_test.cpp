#include "exec/graph_choice.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

HostCost cost(std::int64_t host, std::int64_t step, bool waited = true) {
  return {Nanos{host}, Nanos{step}, waited};
}

// The limit is 80 of 100.
TEST(GraphChoice, AHostThatNeedsMostOfTheStepIsTheLimit) {
  EXPECT_FALSE(is_host_bound(std::vector{cost(80, 100)}));
  EXPECT_TRUE(is_host_bound(std::vector{cost(81, 100)}));
}

TEST(GraphChoice, OneSlowHostHoldsUpAllRanks) {
  EXPECT_FALSE(is_host_bound(std::vector{cost(10, 100), cost(20, 100)}));
  EXPECT_TRUE(is_host_bound(std::vector{cost(10, 100), cost(99, 100)}));
}

TEST(GraphChoice, AHostThatWaitsForRoomInAStreamIsNotTheLimit) {
  EXPECT_FALSE(is_host_bound(std::vector{cost(99, 100, false)}));
}

TEST(GraphChoice, GraphsStayWhereStepsGetShorter) {
  const std::vector before{cost(90, 100), cost(90, 102)};
  EXPECT_TRUE(has_shorter_steps(std::vector{cost(5, 90), cost(5, 111)}, before));  // 201 < 202
  EXPECT_FALSE(has_shorter_steps(std::vector{cost(5, 90), cost(5, 112)}, before));
}

TEST(GraphChoice, TheMedianOfAFewStepsCounts) {
  HostCosts costs;
  EXPECT_EQ(costs.median(), HostCost{});
  for (const auto& [host, step, waited] : {std::tuple{30, 9, true}, {10, 7, false}, {20, 1000, true}}) {
    costs.add(cost(host, step, waited));
  }
  EXPECT_EQ(costs.count(), 3);
  EXPECT_EQ(costs.median(), cost(20, 9, true));  // two of three devices waited
}

}  // namespace
}  // namespace weft
