#include "calibrate/trial_overlap.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

// A step of which the links are the limit: 6 s of transfers one after the other, alone.
double step_of_links(const OverlapFacts& facts) {
  return 6.0 / facts.at_once * (1 + facts.transfer_slowdown);
}

TEST(TrialOverlap, KeepsFactsThatPromisedEnough) {
  const OverlapFacts assumed{2, 0.1};  // predicts 3.3 s
  EXPECT_EQ(fit_overlap(assumed, 3.2, step_of_links), assumed);
}

TEST(TrialOverlap, FewerBytesMoveAtOnce) {
  const OverlapFacts found = fit_overlap({2, 0.1}, 4.4, step_of_links);
  EXPECT_NEAR(found.at_once, 6.0 * 1.1 / 4.4, 1e-3);
  EXPECT_DOUBLE_EQ(found.transfer_slowdown, 0.1);
}

TEST(TrialOverlap, ThenTransfersAreSlower) {
  const OverlapFacts found = fit_overlap({2, 0.1}, 9.0, step_of_links);
  EXPECT_DOUBLE_EQ(found.at_once, 1);
  EXPECT_NEAR(found.transfer_slowdown, 0.5, 1e-3);
}

TEST(TrialOverlap, EndsAtTheLargestSlowdown) {
  const OverlapFacts found = fit_overlap({2, 0.1}, 60.0, step_of_links);
  EXPECT_DOUBLE_EQ(found.at_once, 1);
  EXPECT_DOUBLE_EQ(found.transfer_slowdown, 2);
}

}  // namespace
}  // namespace weft
