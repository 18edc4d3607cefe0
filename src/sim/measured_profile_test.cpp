// Steps of profiles that were measured: what the profile says an operation takes is what the step consists of.
#include <gtest/gtest.h>

#include "bound/bound.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

// Every compute operation of these plans, each another time, in no relation to its size.
DeviceProfile& measure(PlanRequest& r, const std::vector<Plan>& plans) {
  DeviceProfile& device = r.profile.devices[r.cluster.device.name];
  std::int64_t time = 10'007;
  for (const Plan& plan : plans) {
    for (const Operation& op : plan.graph.operations) {
      if (!op.is_transfer()) device.operations.try_emplace(op.key, Nanos{100'000 + (time = time * 31 % 1'000'003)});
    }
  }
  return device;
}

TEST(MeasuredProfile, AStepOfOneRankIsTheSumOfItsMeasuredOperations) {
  PlanRequest r = request(small_gpt(4), parse_cluster("dgx-a100:1,gpus=1"), {.clip_grad = 1}, 3);
  const Plan plan = serial(r);
  DeviceProfile& device = measure(r, {plan});
  device.launch = Nanos{1'000'000'000};  // is in what was measured
  double sum = 0;
  for (const Operation& op : plan.graph.operations) {
    sum += static_cast<double>(device.operations.at(op.key).value) * (op.per_micro_batch ? 3 : 1);
  }
  EXPECT_EQ(simulated(plan, r.profile).period_ns, sum);
}

// Updates are merged: the bound takes the best rate of any of them, so the merged one does not come out below it.
TEST(MeasuredProfile, NoPolicyBeatsTheBound) {
  for (const int zero : {0, 1, 3}) {
    PlanRequest r = request(small_llama(4), parse_cluster("local:4,nic=100Mb/s"), {}, 2);
    r.layout.zero = zero;
    std::vector<Plan> plans;
    for (const char* policy : {"serial", "ddp", "fsdp"}) plans.push_back(make_plan(r, build(r), policy));
    // Half of the operations remain to be scaled from the others.
    DeviceProfile& device = measure(r, {plans[0], plans[1]});
    std::size_t i = 0;
    std::erase_if(device.operations, [&](const auto&) { return ++i % 2 == 0; });
    const StepGraph graph = build(r);
    const Cluster cluster(r.cluster);
    const double bound = step_bound(graph, CostModel(graph, cluster, r.profile)).seconds * 1e9;
    EXPECT_GT(bound, 0);
    for (const Plan& plan : plans) {
      const Timeline timeline = simulated(plan, r.profile);
      EXPECT_LE(bound, timeline.period_ns + static_cast<double>(timeline.operations.size())) << plan.policy;
    }
  }
}

// A serial step is one chain: every transfer in it is waited for, and each takes that much longer.
TEST(MeasuredProfile, WakingThreadsCountsForEveryTransferThatIsWaitedFor) {
  PlanRequest r = request(small_gpt(4), parse_cluster("local:2,nic=1Gb/s"), {.tp = 2}, 3);
  const Plan plan = serial(r);
  std::int64_t waited_for = 0;
  for (const Operation& op : plan.graph.operations) {
    if (op.is_transfer()) waited_for += op.per_micro_batch ? 3 : 1;
  }
  ASSERT_GT(waited_for, 0);
  const double before = simulated(plan, r.profile).period_ns;
  r.profile.devices["cpu"].wake = Nanos{50'000};
  EXPECT_EQ(simulated(plan, r.profile).period_ns, before + 50'000.0 * static_cast<double>(waited_for));
}

TEST(MeasuredProfile, InterferenceReachesTheStep) {
  Transformer model = small_gpt(4);  // 50 million parameters: several buckets, all but the last beside backward
  model.hidden = 1024;
  model.head_dim = 256;
  model.ffn = 4096;
  PlanRequest r = request(model, parse_cluster("local:2,nic=10Gb/s"), {}, 1);
  const auto account_with = [&](std::optional<double> compute_slowdown) {
    r.profile.devices["cpu"].compute_slowdown = compute_slowdown;
    return checked_accounting(simulated(r, "ddp")).mean;
  };
  EXPECT_EQ(account_with({}).slowdown_s, 0);
  EXPECT_EQ(account_with(0.0).slowdown_s, 0);
  // Hidden communication lies beside compute, which takes 1.25 times as long there: a fifth of it is lost.
  const RankAccount slowed = account_with(0.25);
  EXPECT_GT(slowed.slowdown_s, 0);
  EXPECT_NEAR(slowed.slowdown_s, 0.2 * (slowed.comm_s - slowed.exposed_s), 1e-6);  // whole nanoseconds each
}

}  // namespace
}  // namespace weft::test
