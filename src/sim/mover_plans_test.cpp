// Who moves the bytes of transfers inside nodes: what that does to steps, and what policy weft makes of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bound/bound.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/policy/weft.hpp"
#include "planner/schedule/movers.hpp"
#include "sim/test_problems.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

// 1000 ns of compute beside a transfer of 600 ns, on a rank whose compute takes 1.1 times as long beside transfers.
double period_with(double own_slowdown) {
  TestProblem problem;
  const std::int32_t rank = problem.rank(0.1);
  const std::int32_t compute = problem.compute(rank, 1000);
  const std::int32_t transfer = problem.transfer(rank, {.moving = 600});
  problem.wait(transfer, compute, 1);
  problem.wait(compute, transfer, 1);
  SimProblem built = problem.build();
  built.costs[built.operations[transfer].cost].compute_slowdown = own_slowdown;
  return simulate(built).period_ns;
}

// Of the 600 ns compute gets 600 / (1 + s) done: the step takes 600 + 1000 - 600 / (1 + s), rounded up.
TEST(MoversInTheSimulator, OwnSlowdownsReplaceThoseOfTheRank) {
  EXPECT_EQ(period_with(-1), 1055);   // 1600 - 545.45
  EXPECT_EQ(period_with(0.5), 1200);  // 1600 - 400
  EXPECT_EQ(period_with(0), 1000);
}

PlanRequest choosing_movers(PlanRequest r) {
  r.profile.movers = MoverWish::chosen;
  return searching(std::move(r));
}

double step_of(const Plan& plan, const PlanRequest& r) {
  const Cluster cluster(plan.cluster);
  return simulate_plan(WholePlan(plan), CostModel(plan.graph, cluster, r.profile)).period_ns * 1e-9;
}

// A GPT-2 of 8 layers with a step long enough for its transfers to matter.
Transformer medium_gpt() {
  Transformer m = small_gpt(6);
  m.hidden = 1024;
  m.heads = m.kv_heads = 16;
  m.head_dim = 64;
  m.ffn = 4096;
  m.vocab = 8000;
  m.max_seq = 1024;
  return m;
}

struct Case {
  const char* cluster;
  Layout layout;
};

std::vector<Case> cases() {
  Layout sharded, tensor, both;
  sharded.zero = 3;
  tensor.tp = 4;
  tensor.sequence_parallel = true;
  both.zero = 1;
  for (Layout* layout : {&sharded, &tensor, &both}) layout->seq = 1024;
  return {{"dgx-h100:1", sharded}, {"dgx-a100:1", tensor}, {"dgx-h100:2", both}, {"dgx-b200:1", sharded}};
}

// By every combination of rules for the kinds of transfers (the first four of them), which is all that the search
// decides in once the rest is decided: nothing is more than a hundredth faster than what it found.
TEST(MoversOfPolicyWeft, AreAsGoodAsEveryCombination) {
  int others = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.cluster);
    const PlanRequest r = choosing_movers(request(medium_gpt(), parse_cluster(c.cluster), c.layout, 4));
    PlanRequest without = r;
    without.profile.movers = MoverWish::library;
    const SharedGraph graph = build(r);
    const Plan found = make_plan(r, graph, "weft");
    const double step = step_of(found, r);
    Overlap overlap = weft_overlap(searching(without), graph);
    EXPECT_TRUE(overlap.movers == MoverChoice{});
    const WholePlan base = overlapped_plan(without, graph, "weft", overlap);
    EXPECT_LE(step, step_of(base.plan(), r));
    const Cluster cluster(r.cluster);
    const std::vector<MoverKind> kinds =
        kinds_with_movers(base.plan(), CostModel(base.plan().graph, cluster, r.profile));
    int combinations = 1;
    for (std::size_t i = 0; i < kinds.size() && i < 4; ++i) combinations *= 3;
    double best = step;
    for (int combination = 0; combination < combinations; ++combination) {
      overlap.movers = {};
      for (int i = 0, left = combination; left > 0; ++i, left /= 3) {
        overlap.movers.by_kind.emplace_back(kinds[i], static_cast<MoverRule>(left % 3));
      }
      best = std::min(best, step_of(overlapped_plan(without, graph, "weft", overlap).plan(), r));
    }
    EXPECT_LE(step, 1.01 * best);
    for (const Operation& op : found.graph.operations) {
      others += op.communication && !op.communication->mover.is_library() ? 1 : 0;
    }
  }
  EXPECT_GT(others, 0);
}

TEST(MoversOfPolicyWeft, AreProvenAndNeverBelowTheBound) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.cluster);
    const PlanRequest r = choosing_movers(request(medium_gpt(), parse_cluster(c.cluster), c.layout, 4));
    const SharedGraph graph = build(r);
    const Cluster cluster(r.cluster);
    const double bound = step_bound(graph, CostModel(graph, cluster, r.profile)).seconds;
    for (const MoverRule rule : {MoverRule::library, MoverRule::least_loss, MoverRule::in_balance}) {
      for (const char* policy : {"fsdp", "megatron-param", "centauri"}) {
        Overlap overlap = decide_overlap(r, graph, policy);
        overlap.movers.rule = rule;
        const WholePlan made = overlapped_plan(r, graph, policy, overlap);
        const std::optional<Violation> violation = verify_plan(made);
        EXPECT_FALSE(violation.has_value()) << violation->message;
        EXPECT_GE(step_of(made.plan(), r), bound * (1 - 1e-9)) << policy;
      }
    }
  }
}

// The bound that allows for any mover is below steps with userbuffers, which take less from compute than a library.
TEST(Userbuffers, StepsAreProvenAndNotBelowTheBound) {
  for (const char* const machine : {"dgx-a100:1", "dgx-h100:1", "dgx-b200:1"}) {
    for (const std::int64_t tp : {2, 4, 8}) {
      SCOPED_TRACE(fmt::format("{}, tp {}", machine, tp));
      Layout layout;
      layout.tp = tp;
      layout.sequence_parallel = true;
      layout.seq = 1024;
      PlanRequest r = request(medium_gpt(), parse_cluster(machine), layout, 8 / tp);
      r.options.tp_comm_overlap = true;
      const SharedGraph graph = build(r);
      const Overlap overlap = decide_overlap(r, graph, "megatron-param");
      ASSERT_TRUE(overlap.movers.userbuffers.has_value());
      const WholePlan made = overlapped_plan(r, graph, "megatron-param", overlap);
      const std::optional<Violation> violation = verify_plan(made);
      EXPECT_FALSE(violation.has_value()) << violation->message;
      Profile any_mover = r.profile;
      any_mover.movers = MoverWish::chosen;
      const Cluster cluster(r.cluster);
      const double bound = step_bound(graph, CostModel(graph, cluster, any_mover)).seconds;
      EXPECT_GE(step_of(made.plan(), r), bound * (1 - 1e-9));
    }
  }
}

TEST(MoversOfPolicyWeft, ThatCannotBeAreRefusedByTheVerifier) {
  const Case c = cases().front();
  const PlanRequest r = request(medium_gpt(), parse_cluster(c.cluster), c.layout, 4);
  Plan plan = make_plan(r, build(r), "fsdp");
  for (const OpId id : plan.graph.operations.ids()) {
    Operation& op = plan.graph.operations[id];
    if (op.role != Role::grad_reduce) continue;
    op.communication->mover.copy_engine = true;
    break;
  }
  const std::optional<Violation> violation = verify_plan(WholePlan(plan));
  ASSERT_TRUE(violation.has_value());
  EXPECT_NE(violation->message.find("cannot reduce"), std::string::npos) << violation->message;
}

}  // namespace
}  // namespace weft::test
