// Plans with K-FAC: safe under every policy and every decision, in bubbles and in line; and what keeps them safe.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/test_effort.hpp"
#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/schedule/extra_work.hpp"
#include "planner/test_decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

void expect_kfac_safe(const Plan& plan, std::uint64_t seed) {
  const std::optional<Violation> violation = verify_plan(plan, {.check_memory = false});
  ASSERT_FALSE(violation) << violation->message;
  const auto damage = test::find_damage(plan, seed, 2);
  ASSERT_FALSE(damage) << *damage;
}

WholePlan in_bubbles(const PlanRequest& request) {
  Overlap overlap;
  overlap.order.fill_bubbles = true;
  return overlapped_plan(request, test::build(request), "test", overlap);
}

TEST(KfacPlans, AreSafeUnderEveryPolicy) {
  using enum PipelineSchedule;
  const std::vector<test::NamedLayout> layouts = {
      {"dp", {.kfac_interval = 1}},
      {"tp", {.tp = 2, .sequence_parallel = true, .kfac_interval = 2}},
      {"gpipe", {.pp = 4, .kfac_interval = 1, .schedule = gpipe}},
      {"1f1b, clipped", {.pp = 4, .clip_grad = 1, .kfac_interval = 3}},
      {"recomputing", {.pp = 2, .recompute = Recompute::full, .kfac_interval = 2}},
      {"interleaved", {.pp = 2, .vpp = 2, .kfac_interval = 1, .schedule = interleaved}},
      {"split backward", {.pp = 4, .kfac_interval = 2, .schedule = zb_h2}},
  };
  for (const auto& [name, layout] : layouts) {
    const PlanRequest request = test::request(test::small_llama(4), parse_cluster("dgx-a100:1"), layout, 4);
    const SharedGraph graph = test::build(request);
    for (const std::string& policy : policy_names()) {
      if (policy == "weft") continue;  // its decisions are below
      SCOPED_TRACE(fmt::format("{}, {}", name, policy));
      expect_kfac_safe(make_whole_plan(request, graph, policy).plan(), 1);
    }
    SCOPED_TRACE(name + ", in bubbles");
    expect_kfac_safe(in_bubbles(request).plan(), 2);
  }
}

// Both factors of a layer are transfers of their own there too.
TEST(KfacPlans, AreSafeWhereGroupsSpanRankClasses) {
  const PlanRequest request =
      test::request(test::small_gpt(4), test::uneven_nics(),
                    {.pp = 2, .kfac_interval = 1, .mesh_order = {Axis::tp, Axis::cp, Axis::pp, Axis::dp}}, 2);
  ASSERT_GT(test::build(request).classes.size(), 2u);
  expect_kfac_safe(in_bubbles(request).plan(), 3);
  expect_kfac_safe(make_plan(request, test::build(request), "serial"), 3);
}

TEST(KfacPlans, AreSafeWithEveryDecision) {
  int planned = 0;
  for (int seed = 1; seed <= test::rounds(40); ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const auto draw = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    Layout layout;
    layout.pp = std::int64_t{1} << draw(3);
    layout.clip_grad = static_cast<double>(draw(2));
    layout.recompute = draw(2) == 0 ? Recompute::none : Recompute::full;
    layout.kfac_interval = 1 + draw(3);
    using enum PipelineSchedule;
    layout.schedule = std::vector{gpipe, one_f_one_b, zb_h1, zb_h2}[static_cast<std::size_t>(draw(4))];
    const PlanRequest request = test::request(draw(2) == 0 ? test::small_llama(4) : test::small_gpt(4),
                                              parse_cluster("local:4,nic=200Mb/s"), layout, 1 + draw(5));
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const WholePlan made = test::plan_of_drawn_decisions(request, test::build(request), draw);
    if (!find_run_order(made.unfolded()).cycle.empty()) continue;
    ++planned;
    expect_kfac_safe(made.plan(), static_cast<std::uint64_t>(seed));
  }
  EXPECT_GE(planned, test::rounds(40) * 9 / 10);
}

TEST(KfacPlans, PutWhatMayWaitAndNothingElseIntoBubbles) {
  const PlanRequest request =
      test::request(test::small_gpt(4), parse_cluster("local:4,nic=1Gb/s"), {.pp = 2, .kfac_interval = 1}, 4);
  const WholePlan whole = in_bubbles(request);
  const Plan& plan = whole.plan();
  int extra = 0;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    const Queue& queue = plan.classes[op.rank_class].queues[plan.issues[id].queue];
    EXPECT_EQ(queue.kind == QueueKind::extra, op.role == Role::curvature || op.role == Role::inversion) << describe(op);
    extra += queue.kind == QueueKind::extra ? 1 : 0;
  }
  EXPECT_EQ(extra, 4 * 4 * 4);
}

// The deadline: an inversion that comes before its step's preconditioning would overwrite what that still reads.
TEST(KfacPlans, VerifierNeedsInversionsBehindPreconditioning) {
  const PlanRequest request =
      test::request(test::small_gpt(4), parse_cluster("local:2,nic=1Gb/s"), {.pp = 2, .kfac_interval = 1}, 4);
  Plan plan = in_bubbles(request).plan();
  const auto found =
      std::ranges::find_if(plan.graph.operations, [](const Operation& op) { return op.role == Role::inversion; });
  std::erase_if(found->reads, [](const Read& read) { return read.operand == Operand::direction; });
  EXPECT_TRUE(verify_plan(plan, {.check_memory = false}).has_value());
  EXPECT_TRUE(test::find_damage(plan, 1, 20).has_value());
}

}  // namespace
}  // namespace weft
