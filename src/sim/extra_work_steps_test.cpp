// Steps whose bubbles are filled: against the closed form of a pipeline's bubbles, and PipeFisher's rule of how many
// steps they take to hold K-FAC's work.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "planner/passes.hpp"
#include "planner/schedule/extra_work.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

// A stage has two equal layers; the vocabulary costs next to nothing, and so do messages.
PlanRequest equal_stages(PipelineSchedule schedule, std::int64_t interval) {
  Transformer model = small_gpt(8);
  model.hidden = 512;
  model.head_dim = 128;
  model.ffn = 2048;
  model.vocab = 16;
  PlanRequest r = request(model, parse_cluster("local:4,nic=1000Gb/s"),
                          {.pp = 4, .micro_batch = 16, .seq = 64, .kfac_interval = interval, .schedule = schedule}, 4);
  idealize(r);
  issue_at_once(r);
  return r;
}

double step_of(const PlanRequest& r, bool fills) {
  Overlap overlap;
  overlap.order.fill_bubbles = fills;
  const WholePlan whole = overlapped_plan(r, build(r), "test", overlap);
  return simulated(whole.plan(), r.profile).period_ns * 1e-9;
}

struct StageWork {
  double passes = 0, extra = 0, rest = 0;  // forward and backward of a step; what may wait; what is done once a step
  double longest_extra = 0;                // of one operation
};

StageWork work_of_first_stage(const PlanRequest& r) {
  const StepGraph graph = build(r);
  const Cluster cluster(r.cluster);
  const CostModel cost(graph, cluster, r.profile);
  StageWork work;
  for (const Operation& op : graph.operations) {
    if (op.rank_class.index() != 0 || op.is_transfer()) continue;
    const double all = seconds(cost.compute(op)) * static_cast<double>(op.per_micro_batch ? graph.micro_batches : 1);
    if (is_extra_work(op, r.layout)) work.longest_extra = std::max(work.longest_extra, seconds(cost.compute(op)));
    (is_extra_work(op, r.layout) ? work.extra : op.per_micro_batch ? work.passes : work.rest) += all;
  }
  return work;
}

TEST(ExtraWork, HidesInBubblesAsSoonAsTheyHoldIt) {
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b}) {
    const StageWork work = work_of_first_stage(equal_stages(schedule, 1));
    // (p - 1)(F + B) with p = 4 stages, and F + B a quarter of the passes of 4 micro-batches.
    const double bubble = 3 * work.passes / 4;
    const auto interval = static_cast<std::int64_t>(std::ceil(work.extra / bubble));
    const double without = step_of(equal_stages(schedule, 1'000'000), true);
    EXPECT_NEAR(without / (7 * work.passes / 4 + work.rest), 1, 0.02);
    // Nothing that has begun is interrupted, so wherever a stage waited for the one before or behind it, it may go on
    // by the longest such operation later: once on the way through 4 stages and once on the way back.
    const PlanRequest seldom = equal_stages(schedule, 2 * interval);
    const double hidden = step_of(seldom, true);
    EXPECT_GE(hidden, 0.999 * without);
    EXPECT_LE(hidden, without + 8 * work_of_first_stage(seldom).longest_extra) << name_of(schedule);
    EXPECT_LT(hidden, without + work_of_first_stage(seldom).extra) << name_of(schedule);
    // Twice as much as bubbles hold does not fit: the step is at least all that a device has to do.
    if (interval > 1) {
      const PlanRequest often = equal_stages(schedule, 1);
      EXPECT_GE(step_of(often, true), 0.999 * (work.passes + work.extra + work.rest));
    }
  }
}

TEST(ExtraWork, IsNeverSlowerInBubblesThanInLine) {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1}) {
    for (const std::int64_t interval : {1, 2, 4, 8}) {
      const PlanRequest r = equal_stages(schedule, interval);
      const double filled = step_of(r, true), in_line = step_of(r, false);
      EXPECT_LT(filled, in_line) << name_of(schedule) << ", every " << interval;
      const StageWork work = work_of_first_stage(r);
      EXPECT_GE(filled, 0.999 * (work.passes + work.extra + work.rest));
    }
  }
}

}  // namespace
}  // namespace weft::test
