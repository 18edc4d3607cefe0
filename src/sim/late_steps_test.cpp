// Steps with late operations: never below the bound, and shorter where a step's reductions have nowhere else to hide.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/test_effort.hpp"
#include "bound/bound.hpp"
#include "plan/late.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"
#include "sim/memory_curve.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

double late_step_ns(const PlanRequest& r, const SharedGraph& graph, const Overlap& overlap) {
  const WholePlan made = overlapped_plan(r, graph, "weft", overlap);
  return simulate_plan(made, CostModel(made.plan().graph, Cluster(r.cluster), r.profile)).period_ns;
}

TEST(LateSteps, AreNotBelowTheBound) {
  std::mt19937_64 random(5);
  for (const Transformer& model : {small_gpt(3), small_moe(4)}) {
    for (const char* const cluster : {"dgx-a100:2", "local:16,nic=200Mb/s"}) {
      const Layout layout{.ep = model.experts ? 4 : 1, .zero = static_cast<int>(random() % 2)};
      const PlanRequest r = request(model, parse_cluster(cluster), layout, 1);
      const SharedGraph graph = build(r);
      const double bound = 1e9 * step_bound(graph, CostModel(graph, Cluster(r.cluster), r.profile)).seconds;
      const DecisionSpace space(r, graph);
      for (int draw = 0; draw < rounds(6); ++draw) {
        Decisions decisions = space.start();
        for (std::size_t d = 0; d < DecisionSpace::kWeaveVisits; ++d) {
          decisions.chosen[d] = static_cast<std::size_t>(random() % space.options(d));
        }
        Overlap overlap = space.overlap(decisions);
        overlap.weave = {.enabled = true, .late_layers = static_cast<std::int32_t>(random() % 5)};
        SCOPED_TRACE(fmt::format("{} on {}, draw {}", model.name, cluster, draw));
        EXPECT_GE(late_step_ns(r, graph, overlap), bound * (1 - 1e-6));
      }
    }
  }
}

// Two ranks, one slow link, no interference. Without late operations a step ends with the update, which waits for the
// last reduction: forward hides none of the traffic. With them forward goes on while later layers' gradients travel.
TEST(LateSteps, HideReductionsUnderTheNextForward) {
  PlanRequest r = request(small_gpt(6), parse_cluster("local:2,nic=1Gb/s"), {.seq = 64}, 1);
  idealize(r);
  const SharedGraph graph = build(r);
  const Cluster cluster(r.cluster);
  const CostModel cost(graph, cluster, r.profile);
  double forward_ns = 0;
  for (const Operation& op : graph->operations) {
    if (op.phase == Phase::forward && !op.is_transfer()) forward_ns += static_cast<double>(cost.alone(op).value);
  }
  Overlap overlap;
  overlap.beside.reductions = true;
  overlap.weave.enabled = true;
  const double in_turn = late_step_ns(r, graph, overlap);
  overlap.weave.late_layers = 0;
  const double late = late_step_ns(r, graph, overlap);
  EXPECT_LT(late, in_turn);
  // Forward is all that was added to what may hide a transfer.
  EXPECT_GE(late, in_turn - forward_ns);
}

// What late operations read counts from the step that wrote it to the next one's forward.
TEST(LateSteps, HoldWhatTheyReadMeanwhile) {
  const PlanRequest r = request(small_gpt(4), parse_cluster("local:2,nic=1Gb/s"), {.seq = 64}, 1);
  const SharedGraph graph = build(r);
  Overlap overlap;
  overlap.beside.reductions = true;
  overlap.weave = {.enabled = true, .late_layers = 4};
  const WholePlan made = overlapped_plan(r, graph, "weft", overlap);
  ASSERT_GT(summarize_late(made.plan()).weight_grads, 8);
  const Cluster cluster(r.cluster);
  const CostModel cost(made.plan().graph, cluster, r.profile);
  const Timeline timeline = simulate_plan(made, cost);
  Bytes persistent;
  for (const Value& value : made.plan().graph.values) {
    if (!value.per_micro_batch) persistent += value.bytes();
  }
  const std::vector<MemorySample> curve = memory_curve(made.plan(), timeline).front();
  ASSERT_FALSE(curve.empty());
  // At the begin of a step nothing of its own is there yet.
  EXPECT_GE(curve.front().bytes, summarize_late(made.plan()).held);
  EXPECT_LE(curve.front().bytes, persistent + summarize_late(made.plan()).held + Bytes{1 << 20});
}

}  // namespace
}  // namespace weft::test
