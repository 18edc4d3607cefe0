#include "study/plan/launch_gain.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

PlanStudy study_of(const std::vector<std::pair<std::string, double>>& steps, std::size_t best) {
  PlanStudy study;
  for (const auto& [policy, step_s] : steps) {
    PolicyStudy& own = study.policies.emplace_back();
    own.policy = policy;
    own.step_s = step_s;
  }
  study.best = best;
  return study;
}

TEST(LaunchGain, IsTheLaunchsOwnStepOverTheBest) {
  const PlanStudy study = study_of({{"serial", 4}, {"megatron-grad", 3}, {"weft", 2}}, 2);
  const auto gain = gain_over_launch(study, "megatron-grad");
  ASSERT_TRUE(gain);
  EXPECT_EQ(gain->launched.policy, "megatron-grad");
  EXPECT_EQ(gain->best.policy, "weft");
  EXPECT_DOUBLE_EQ(gain->speedup(), 1.5);
}

TEST(LaunchGain, IsNothingWithoutAPlanOfTheLaunch) {
  const PlanStudy study = study_of({{"serial", 4}, {"weft", 2}}, 1);
  EXPECT_FALSE(gain_over_launch(study, "megatron-grad"));
  EXPECT_FALSE(gain_over_launch(study, ""));
}

}  // namespace
}  // namespace weft
