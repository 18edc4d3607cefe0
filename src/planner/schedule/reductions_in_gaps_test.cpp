#include "planner/schedule/reductions_in_gaps.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

using Behind = std::vector<std::int32_t>;

// All-to-alls from 10 to 20 and from 40 to 50. The first piece, ready at 5, would last until 13: it waits for the first
// all-to-all and takes 20..28. The second fills 28..40 to the end. The third is ready in time and has no room: it goes
// behind the second all-to-all, and the fourth behind the third without being told.
TEST(FitIntoGaps, TakesTheFirstThatHoldsThePiece) {
  const GapProblem problem{{{10, 20}, {40, 50}}, {{5, 8}, {12, 12}, {30, 5}, {31, 100}}};
  EXPECT_EQ(fit_into_gaps(problem), (Behind{0, -1, 1, -1}));
}

TEST(FitIntoGaps, TellsNobodyToWaitWhoHasRoomWhenReady) {
  EXPECT_EQ(fit_into_gaps({{{10, 20}, {40, 50}}, {{2, 8}, {22, 18}, {60, 5}}}), (Behind{-1, -1, -1}));
  EXPECT_EQ(fit_into_gaps({{}, {{2, 8}, {0, 3}}}), (Behind{-1, -1}));
  EXPECT_TRUE(fit_into_gaps({{{0, 1}}, {}}).empty());
}

// Longer than the one gap (20) there is between all-to-alls: from 5 on it is under way when the first begins. One that
// is ready while an all-to-all travels waits for its end.
TEST(FitIntoGaps, LetsLongPiecesOverlap) {
  EXPECT_EQ(fit_into_gaps({{{10, 20}, {40, 50}}, {{5, 21}}}), (Behind{-1}));
  EXPECT_EQ(fit_into_gaps({{{10, 20}, {40, 50}}, {{12, 21}}}), (Behind{0}));
}

// Two nodes, experts over both, gradients over both: they share the adapters. What waits are reductions of gradients,
// for all-to-alls of backward, and the plan is safe: the verifier and runs with random timings say so.
TEST(ReduceInGaps, MakesPlansThatAreSafe) {
  for (const std::int64_t micro_batches : {1, 3}) {
    PlanRequest request;
    request.model = test::small_moe(6);
    request.cluster = parse_cluster("dgx-a100:2,gpus=2,nic=1Gb/s");
    request.profile = default_profile();
    request.layout.dp = request.layout.ep = 4;
    request.layout.seq = 64;
    request.layout.micro_batch = 2;
    request.layout.global_batch = 8 * micro_batches;
    request.options.bucket_mib = 0;
    const StepGraph graph = build_step_graph(request.model, Cluster(request.cluster), request.layout);
    const Plan plan = make_plan(request, graph, "lancet");
    ASSERT_FALSE(plan.waits.empty());
    for (const Wait& wait : plan.waits) {
      EXPECT_EQ(plan.graph.op(wait.operation).role, Role::grad_reduce);
      EXPECT_EQ(plan.graph.op(wait.until).communication->group, GroupKind::ep);
      EXPECT_NE(plan.graph.op(wait.until).phase, Phase::forward);
      EXPECT_EQ(wait.executions, 0);
    }
    const std::optional<Violation> found = verify_plan(plan);
    EXPECT_FALSE(found.has_value()) << found->message;
    EXPECT_FALSE(test::find_damage(plan, 1, 5).has_value());
    // Each waits for the last micro-batch that its class issues.
    const Unfolded unfolded(plan);
    for (const InstanceId i : unfolded.instances().ids()) {
      for (const Edge& edge : unfolded.waits_for(i)) {
        if (edge.kind != EdgeKind::wait) continue;
        EXPECT_EQ(unfolded.instances()[edge.from].micro_batch.value, micro_batches - 1);
        EXPECT_EQ(edge.distance, 0);
      }
    }
  }
}

TEST(ReduceInGaps, IsRefusedTheOtherWayRound) {
  PlanRequest request;
  request.model = test::small_moe(4);
  request.cluster = parse_cluster("local:2");
  request.profile = default_profile();
  request.layout.dp = request.layout.ep = 2;
  request.layout.seq = 64;
  request.layout.global_batch = 2;
  request.layout.precision = ElementType::fp32;
  const StepGraph graph = build_step_graph(request.model, Cluster(request.cluster), request.layout);
  Plan plan = make_plan(request, graph, "ddp");
  const auto of = [&](auto wanted) {
    const auto at = std::find_if(plan.graph.operations.begin(), plan.graph.operations.end(), wanted);
    return make_id<OpId>(at - plan.graph.operations.begin());
  };
  const OpId reduction = of([](const Operation& op) { return op.role == Role::grad_reduce; });
  const OpId exchange = of([](const Operation& op) { return op.role == Role::expert_dispatch; });
  plan.waits = {{reduction, exchange, 0}};
  EXPECT_NO_THROW(Unfolded{plan});
  // The reduction follows all of backward, and backward the exchange.
  plan.waits = {{exchange, reduction, 0}};
  EXPECT_FALSE(find_run_order(Unfolded{plan}).cycle.empty());
  plan.waits = {{reduction, exchange, 1}};
  EXPECT_THROW(Unfolded{plan}, Error);
}

}  // namespace
}  // namespace weft
