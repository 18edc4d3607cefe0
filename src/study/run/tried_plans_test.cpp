#include "study/run/tried_plans.hpp"

#include <gtest/gtest.h>

#include "cluster/presets.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

std::deque<TriedPlan> tried(const std::vector<std::vector<double>>& turns) {
  std::deque<TriedPlan> plans;
  for (const auto& each : turns) plans.push_back({.name = "", .turns = each});
  return plans;
}

using Numbers = std::vector<std::size_t>;

TEST(TriedPlans, TheFastestIsTheOneWhoseTurnsTakeLeastInTheMean) {
  EXPECT_EQ(fastest_of(tried({{1.0}, {0.9}, {0.95}})), 1U);
  EXPECT_EQ(fastest_of(tried({{1.0, 1.0}, {0.9, 1.2}})), 0U);
}

TEST(TriedPlans, ThoseWithinTheSpreadOfTheFastestAreTriedOnceMore) {
  EXPECT_EQ(too_close_to_call(tried({{1.0}, {1.5}, {1.03}}), 0.02, 3), Numbers{});
  EXPECT_EQ(too_close_to_call(tried({{1.019}, {1.5}, {1.0}, {1.01}}), 0.02, 3), (Numbers{2, 3, 0}));
  EXPECT_EQ(too_close_to_call(tried({{1.019}, {1.5}, {1.0}, {1.01}}), 0.02, 2), (Numbers{2, 3}));
}

PlanStudy studied() {
  Inputs inputs;
  inputs.model = model_preset("gpt2");
  inputs.cluster = parse_cluster("dgx-a100:1");
  inputs.layout = {.dp = 8, .micro_batch = 1, .global_batch = 8, .seq = 32};
  return study_plan(inputs, {"serial", "ddp", "priority"}, default_profile());
}

TEST(TriedPlans, PlansWorthATrialFitAreNewAndComeCloseToTheBest) {
  PlanStudy study = studied();
  std::vector<PolicyStudy>& policies = study.policies;
  ASSERT_EQ(policies.size(), 3U);
  policies[0].step_s = 1.1;
  policies[1].step_s = 1.0;
  policies[2].step_s = 1.2;
  EXPECT_EQ(worth_a_trial(policies, {}, 1.0, 3), (Numbers{1, 0}));  // the third is predicted 20 % slower
  EXPECT_EQ(worth_a_trial(policies, {}, 1.1, 3), (Numbers{1, 0, 2}));
  EXPECT_EQ(worth_a_trial(policies, {}, 1.1, 2), (Numbers{1, 0}));
  EXPECT_EQ(worth_a_trial(policies, {digest_without_name(policies[1].plan())}, 1.1, 3), (Numbers{0, 2}));
  policies[0].fits = false;
  EXPECT_EQ(worth_a_trial(policies, {}, 1.1, 3), (Numbers{1, 2}));
  // This is one plan under another name.
  Plan named = policies[1].plan();
  named.policy = "another";
  EXPECT_EQ(digest_without_name(named), digest_without_name(policies[1].plan()));
  policies[2].whole = policies[1].whole;
  EXPECT_EQ(worth_a_trial(policies, {}, 1.1, 3), Numbers{1});
}

TEST(TriedPlans, ACautiousProfileDoublesWhatTransfersAndComputeTakeFromEachOther) {
  Device device = device_profile("a100-80");
  device.compute_slowdown = 0.1;
  device.transfer_slowdown = 0.2;
  Profile profile = default_profile();
  profile.library.at_once = 2;
  const Profile careful = cautious(profile, device);
  const DeviceProfile own = careful.device(device.name);
  EXPECT_DOUBLE_EQ(own.compute_slowdown.value_or(0), 0.2);
  EXPECT_DOUBLE_EQ(own.transfer_slowdown.value_or(0), 0.4);
  EXPECT_EQ(careful.library.at_once, 1);
}

}  // namespace
}  // namespace weft
