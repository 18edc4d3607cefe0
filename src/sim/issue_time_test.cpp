#include "sim/issue_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

PlanRequest one_rank(Nanos launch) {
  PlanRequest r = request(small_gpt(4), parse_cluster("dgx-a100:1,gpus=1"), {}, 2);
  issue_at_once(r);
  for (auto& [name, device] : r.profile.devices) device.launch = launch;
  return r;
}

// Two clocks: kernel i starts when the host has issued it and kernel i - 1 has ended.
double two_clocks(const Plan& plan, const CostModel& cost, bool forward, Nanos launch) {
  std::int64_t host = 0, device = 0;
  for (const Operation& op : plan.graph.operations) {
    if (!op.per_micro_batch || (op.phase == Phase::forward) != forward) continue;
    const std::int64_t kernels = cost.launch(op).value / std::max<std::int64_t>(1, launch.value);
    host += kernels * launch.value;
    device = std::max(device, host) + cost.compute(op).value;
  }
  return static_cast<double>(device) * 1e-9;
}

TEST(IssueTime, ALateHostStretchesABlockAsTwoClocksSay) {
  for (const Nanos launch : {Nanos{1}, Nanos{10'000}, Nanos{1'000'000}}) {
    const PlanRequest r = one_rank(launch);
    const Plan plan = serial(r);
    const Cluster cluster(plan.cluster);
    const CostModel cost(plan.graph, cluster, r.profile);
    double update = 0;
    for (const Operation& op : plan.graph.operations) {
      if (!op.per_micro_batch) update += seconds(cost.compute(op));
    }
    const double micro_batch = two_clocks(plan, cost, true, launch) + two_clocks(plan, cost, false, launch);
    EXPECT_NEAR(simulated(plan, r.profile).period_ns * 1e-9, 2 * micro_batch + update, 1e-9) << launch.value;
  }
}

TEST(IssueTime, AHostThatIsFastEnoughCostsNothingButTheFirstKernel) {
  PlanRequest slow = one_rank(Nanos{100});
  const double with = simulated(slow).period_ns;
  const double without = simulated(one_rank(Nanos{0})).period_ns;
  EXPECT_NEAR(with - without, 2 * 2 * 100, 1);  // two micro-batches of two blocks
}

// Gathers that take far longer than the host needs for a layer: while compute waits for them, the host gets ahead, so
// that only what it issues before the first gather costs time.
TEST(IssueTime, IsHiddenWhileRowsOfOthersArrive) {
  const auto step = [](Nanos launch) {
    PlanRequest r = request(small_gpt(4), parse_cluster("dgx-a100:1,gpus=2"), {.tp = 2, .sequence_parallel = true}, 1);
    issue_at_once(r);
    for (LevelSpec& level : r.cluster.levels) level.latency = Nanos{10'000'000};
    for (auto& [name, device] : r.profile.devices) device.launch = launch;
    return simulated(r, "nanotron").period_ns;
  };
  const double slow =
      step(Nanos{20'000});  // a layer has about 40 kernels: 0.8 ms in 10 gathers and reductions of 10 ms
  EXPECT_GT(slow, step(Nanos{0}));
  EXPECT_LT(slow - step(Nanos{0}), 2e6);
}

TEST(IssueTime, AfterAPipelineMessageTheHostStartsAnew) {
  PlanRequest r = request(small_gpt(4), parse_cluster("dgx-a100:1,gpus=2"), {.pp = 2}, 1);
  issue_at_once(r);
  const double without = simulated(r).period_ns;
  for (auto& [name, device] : r.profile.devices) device.resync = Nanos{50'000};
  // One micro-batch waits for one message forward and one back.
  EXPECT_NEAR(simulated(r).period_ns - without, 2 * 50'000, 1);
}

}  // namespace
}  // namespace weft::test
