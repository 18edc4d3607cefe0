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

// Two steps: one of which the links are the limit, and one of 10 s of computation beside transfers.
std::vector<double> steps_of_both(const OverlapFacts& facts) {
  return {step_of_links(facts), 10 * (1 + facts.compute_slowdown)};
}

TEST(TrialOverlap, SeveralPlansTellSlowdownsApart) {
  const std::vector<double> measured = {9.0, 13.0};
  const OverlapFacts alone{1, 0.3, 0.2};
  const OverlapFacts found = fit_overlap_of_all(alone, alone, measured, steps_of_both);
  EXPECT_NEAR(step_of_links(found), 9.0, 0.02 * 9.0);
  EXPECT_NEAR(found.compute_slowdown, 0.3, 0.03);
}

TEST(TrialOverlap, FactsThatPredictAllPlansAreKept) {
  const OverlapFacts alone{2, 0.1, 0.2};
  EXPECT_EQ(fit_overlap_of_all(alone, {1, 0.5, 0.2}, steps_of_both(alone), steps_of_both), alone);
}

}  // namespace
}  // namespace weft
