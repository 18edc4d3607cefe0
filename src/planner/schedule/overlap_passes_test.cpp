// The passes of this folder that let transfers run beside compute, on top of plans of any policy.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/test_effort.hpp"
#include "graph/substitute.hpp"
#include "plan/memory/place.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"
#include "planner/schedule/overlap_receives.hpp"
#include "planner/schedule/overlap_zero.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

std::string verdict(const Plan& plan) {
  const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
  return found ? found->message : "safe";
}

bool is_receive(const Operation& op) {
  return op.communication && op.communication->collective == Collective::send_recv && !op.communication->sends;
}

TEST(OverlapReceives, IsSafeInEveryPipeline) {
  int pipelines = 0;
  for (const auto& [name, base] : test::layouts()) {
    if (base.pp == 1) continue;
    for (const std::int64_t m : {4, 8}) {
      Layout layout = base;
      layout.recompute = m == 4 ? Recompute::none : Recompute::full;
      SCOPED_TRACE(fmt::format("{}, {} micro-batches", name, m));
      Plan plan = test::serial(test::request(test::small_moe(), parse_cluster("dgx-a100:2"), layout, m));
      overlap_receives(plan);
      place_values(plan);
      ASSERT_EQ(verdict(plan), "safe");
      EXPECT_EQ(test::find_damage(plan, 5, test::rounds(3)).value_or("safe"), "safe");
      ++pipelines;
    }
  }
  EXPECT_EQ(pipelines, 2 * 13);
}

// What is received takes one more place than when compute waits for it, and the receive waits for the oldest one.
TEST(OverlapReceives, TakesOneMorePlaceForWhatIsReceived) {
  for (const auto schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved}) {
    const std::int64_t vpp = schedule == PipelineSchedule::interleaved ? 2 : 1;
    const Plan serial = test::serial(test::small_gpt(8), "local:4", {.pp = 4, .vpp = vpp, .schedule = schedule}, 12);
    Plan plan = serial;
    overlap_receives(plan);
    place_values(plan);
    int received = 0;
    for (const Operation& op : plan.graph.operations) {
      if (!is_receive(op)) continue;
      const Placement& before = serial.placements[op.writes.front().value.index()];
      const Placement& now = plan.placements[op.writes.front().value.index()];
      if (before.frame < 0) {
        EXPECT_EQ(now.copies, before.copies + 1) << describe(op);
      }
      EXPECT_GE(now.copies, 2) << describe(op);
      EXPECT_TRUE(now.waits);
      ++received;
    }
    EXPECT_EQ(received, 2 * (4 * vpp - 1));
  }
}

TEST(OverlapReceives, WithoutTheWaitIsRejected) {
  Plan plan = test::serial(test::small_gpt(4), "local:2", {.pp = 2, .schedule = PipelineSchedule::gpipe}, 6);
  overlap_receives(plan);
  place_values(plan);
  ASSERT_EQ(verdict(plan), "safe");
  const OpId receive = test::find_op(plan.graph, "stage 0", "stage_output input_grad");
  plan.placements[plan.graph.op(receive).writes.front().value.index()].waits = false;
  EXPECT_NE(verdict(plan), "safe");
  EXPECT_TRUE(test::find_damage(plan, 1, 30).has_value());
}

// Any of the two, with and without the other, at both stages: also where a policy leaves the rest as serial has it.
TEST(OverlapShardedTraffic, IsSafeWhicheverPartOverlaps) {
  test::Sample sample;
  for (const auto& [name, base] : test::layouts()) {
    for (const int zero : {2, 3}) {
      for (const auto& [gathers, reductions] :
           {std::pair{true, false}, std::pair{false, true}, std::pair{true, true}}) {
        if (!sample.takes()) continue;
        Layout layout = base;
        layout.zero = zero;
        SCOPED_TRACE(fmt::format("{}, zero {}, gathers {}, reductions {}", name, zero, gathers, reductions));
        Plan plan = test::serial(test::request(test::small_moe(), test::uneven_nics(), layout, 4));
        overlap_sharded_traffic(plan, {.gathers = gathers, .reductions = reductions, .prefetch = 2});
        if (gathers != reductions) overlap_receives(plan);
        place_values(plan);
        ASSERT_EQ(verdict(plan), "safe");
        if (base.pp == 2) {
          EXPECT_EQ(test::find_damage(plan, 9, 1).value_or("safe"), "safe");
        }
      }
    }
  }
}

// Where weight gradients have blocks of their own, a block begins with the writer of a buffer. A reduction in legs that
// writer waits for may then last until the block begins again, with other blocks in between.
TEST(OverlapShardedTraffic, KeepsGradientsForLegsThatOutlastTheirBlock) {
  for (const PipelineSchedule schedule : {PipelineSchedule::zb_h1, PipelineSchedule::zb_h2}) {
    for (const std::int32_t layers : {2, 3, 4, 5}) {
      SCOPED_TRACE(fmt::format("{} layers", layers));
      const PlanRequest r = test::request(test::small_gpt(layers), parse_cluster("dgx-h100:4,gpus=2"),
                                          {.pp = 2, .zero = 2, .schedule = schedule}, 4);
      const SharedGraph graph = test::build(r);
      Overlap overlap = decide_overlap(r, graph, "fsdp");
      overlap.partition.substitutions = first_possible(graph, {Substitution::reduce_scatter_in_levels});
      const WholePlan made = make_whole_plan(r, graph, "fsdp", overlap);
      const std::optional<Violation> found = verify_plan(made);
      EXPECT_FALSE(found) << found->message;
    }
  }
}

}  // namespace
}  // namespace weft
