// Plans of layouts in which micro-batches pass layers in groups: safe under every policy and every decision, and small.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/test_effort.hpp"
#include "graph/memory_bound.hpp"
#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/test_decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

void expect_safe(const Plan& plan, std::uint64_t seed) {
  const std::optional<Violation> violation = verify_plan(plan, {.check_memory = false});
  ASSERT_FALSE(violation) << violation->message;
  const auto damage = test::find_damage(plan, seed, 2);
  ASSERT_FALSE(damage) << *damage;
}

TEST(LayerGroupPlans, AreSafeUnderEveryPolicy) {
  const std::vector<test::NamedLayout> layouts = {
      {"dp", {}},
      {"tp", {.tp = 2, .etp = 2, .sequence_parallel = true}},
      {"cp, recomputing", {.cp = 2, .recompute = Recompute::full}},
      {"in two levels, clipped", {.zero_shards = 2, .clip_grad = 1}},
  };
  for (const auto& [name, base] : layouts) {
    for (const int zero : {2, 3}) {
      for (const std::int64_t group : {2, 4}) {
        Layout layout = base;
        layout.zero = zero;
        layout.layer_group = group;
        const PlanRequest request = test::request(test::small_gpt(3), parse_cluster("dgx-a100:1"), layout, 4);
        const SharedGraph graph = test::build(request);
        for (const std::string& policy : policy_names()) {
          if (policy == "weft") continue;  // its decisions are below
          SCOPED_TRACE(fmt::format("{}, zero {}, groups of {}, {}", name, zero, group, policy));
          expect_safe(make_whole_plan(request, graph, policy).plan(), 1);
        }
      }
    }
  }
}

TEST(LayerGroupPlans, AreSafeWithEveryDecision) {
  int planned = 0;
  for (int seed = 1; seed <= test::rounds(40); ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const auto draw = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    Layout layout;
    layout.tp = layout.etp = std::int64_t{1} << draw(2);
    layout.sequence_parallel = layout.tp > 1 && draw(2) == 1;
    layout.zero = static_cast<int>(2 + draw(2));
    layout.clip_grad = static_cast<double>(draw(2));
    layout.recompute = draw(2) == 0 ? Recompute::none : Recompute::full;
    layout.layer_group = 2 + draw(2);
    const PlanRequest request =
        test::request(draw(2) == 0 ? test::small_llama(4) : test::small_gpt(4), parse_cluster("local:4,nic=200Mb/s"),
                      layout, layout.layer_group * (1 + draw(3)));
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const WholePlan made = test::plan_of_drawn_decisions(request, test::build(request), draw);
    if (!find_run_order(made.unfolded()).cycle.empty()) continue;
    ++planned;
    expect_safe(made.plan(), static_cast<std::uint64_t>(seed));
  }
  EXPECT_GE(planned, test::rounds(40) * 9 / 10);
}

// Every micro-batch of a group adds what its forward leaves for backward. Logits, whole parameters, whole gradients and
// scratch are there as often as without groups, because micro-batches use them in turn.
TEST(LayerGroupPlans, HoldTheActivationsOfAGroup) {
  const auto request = [](std::int64_t group) {
    return test::request(test::small_llama(6), parse_cluster("local:2"),
                         {.micro_batch = 4, .zero = 3, .layer_group = group}, 4);
  };
  const auto memory = [&](std::int64_t group) {
    const PlanRequest r = request(group);
    return make_whole_plan(r, test::build(r), "fsdp").plan().classes.front().memory.value;
  };
  const std::int64_t saved_by_two = memory_lower_bound(request(4).model, request(4).layout).activations.value -
                                    memory_lower_bound(request(2).model, request(2).layout).activations.value;
  ASSERT_GT(saved_by_two, 0);
  EXPECT_NEAR(static_cast<double>(memory(4) - memory(2)) / static_cast<double>(saved_by_two), 1, 0.1);
}

// The forward block ends with the last layer; the head is in the backward block, micro-batch after micro-batch.
TEST(LayerGroupPlans, PassTheHeadForwardAndAtOnceBackward) {
  const PlanRequest request =
      test::request(test::small_llama(2), parse_cluster("local:2"), {.zero = 3, .layer_group = 3}, 3);
  const Plan plan = make_whole_plan(request, test::build(request), "serial").plan();
  std::vector<std::string> heads;
  for (const OpId id : block_of(plan.classes.front(), BlockKind::backward).operations) {
    const Operation& op = plan.graph.op(id);
    if (op.role == Role::loss) heads.push_back(fmt::format("{} {}", name_of(op.phase), op.turn));
  }
  const std::vector<std::string> expected = {"forward 0",    "input_grad 0", "forward 1",
                                             "input_grad 1", "forward 2",    "input_grad 2"};
  EXPECT_EQ(heads, expected);
}

}  // namespace
}  // namespace weft
