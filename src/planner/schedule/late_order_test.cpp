// Orders with late operations: plans that have them are safe, by the verifier and by running them with random timings,
// and a plan that the verifier accepts after a random change survives such runs too.
#include "planner/schedule/late_order.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/test_effort.hpp"
#include "plan/late.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

Overlap late_overlap(const DecisionSpace& space, std::mt19937_64& random) {
  Decisions decisions = space.start();
  for (std::size_t d = 0; d < DecisionSpace::kDimensions; ++d) {
    decisions.chosen[d] = static_cast<std::size_t>(random() % space.options(d));
  }
  Overlap overlap = space.overlap(decisions);
  overlap.weave.enabled = true;
  overlap.weave.late_layers = static_cast<std::int32_t>(random() % 4);
  overlap.weave.visits = std::min<std::int64_t>(overlap.weave.visits, 2000);
  return overlap;
}

std::string late_fault(const WholePlan& made) {
  const auto found = verify_plan(made, {.memory_limit = {}, .check_memory = false});
  return found ? found->message : "safe";
}

TEST(LateOrder, MakesSafePlans) {
  std::mt19937_64 random(7);
  const std::vector<const char*> clusters{"dgx-a100:2", "local:16,nic=200Mb/s", "p4de:2"};
  int with_late_operations = 0, with_late_gradients = 0;
  for (const Transformer& model : {test::small_gpt(3), test::small_llama(3), test::small_moe(4), test::small_mla(3)}) {
    for (const auto& [name, base] : test::layouts()) {
      if (base.pp > 1 || (base.ep > 1 && !model.experts)) continue;
      Layout layout = base;
      layout.zero = static_cast<int>(random() % 2);
      layout.recompute = static_cast<Recompute>(random() % 3);
      SCOPED_TRACE(fmt::format("{}, {}, zero {}, recompute {}", model.name, name, layout.zero,
                               static_cast<int>(layout.recompute)));
      const PlanRequest r = test::request(model, parse_cluster(clusters[random() % clusters.size()]), layout, 1);
      ASSERT_TRUE(allows_late_order(r));
      const SharedGraph graph = test::build(r);
      const DecisionSpace space(r, graph);
      for (int draw = 0; draw < test::rounds(2); ++draw) {
        const WholePlan made = overlapped_plan(r, graph, "weft", late_overlap(space, random));
        ASSERT_EQ(late_fault(made), "safe");
        ASSERT_EQ(test::find_damage(made.plan(), random(), 3).value_or("safe"), "safe");
        with_late_operations += has_late(made.plan()) ? 1 : 0;
        with_late_gradients += summarize_late(made.plan()).weight_grads > 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(with_late_operations, 10);
  EXPECT_GT(with_late_gradients, 5);
}

// Moves a section of the order, or turns the lateness of an operation round.
void change_late_plan(Plan& plan, std::mt19937_64& random) {
  std::vector<IssueSlot>& order = plan.classes.front().order;
  if (random() % 3 == 0) {
    const auto id = make_id<OpId>(random() % plan.issues.size());
    plan.issues[id].late = !plan.issues[id].late;
    return;
  }
  const std::size_t from = random() % order.size(), to = random() % order.size();
  const IssueSlot slot = order[from];
  order.erase(order.begin() + static_cast<std::ptrdiff_t>(from));
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(std::min(to, order.size())), slot);
}

TEST(LateOrder, WhatTheVerifierAcceptsRuns) {
  std::mt19937_64 random(11);
  int accepted = 0, rejected = 0;
  for (const Transformer& model : {test::small_gpt(2), test::small_moe(2)}) {
    const Layout layout{.ep = model.experts ? 4 : 1, .zero = 1};
    const PlanRequest r = test::request(model, parse_cluster("local:16,nic=200Mb/s"), layout, 1);
    const SharedGraph graph = test::build(r);
    const DecisionSpace space(r, graph);
    WholePlan made = overlapped_plan(r, graph, "weft", late_overlap(space, random));
    for (int draw = 0; draw < 50 && summarize_late(made.plan()).weight_grads == 0; ++draw) {
      made = overlapped_plan(r, graph, "weft", late_overlap(space, random));
    }
    ASSERT_GT(summarize_late(made.plan()).weight_grads, 0);
    for (int i = 0; i < test::rounds(60); ++i) {
      Plan changed = made.plan();
      change_late_plan(changed, random);
      if (check_plan(changed, {.memory_limit = {}, .check_memory = false}).violation) {
        ++rejected;
        continue;
      }
      ++accepted;
      ASSERT_EQ(test::find_damage(changed, random(), 5).value_or("safe"), "safe");
    }
  }
  EXPECT_GT(accepted, test::rounds(5));
  EXPECT_GT(rejected, test::rounds(20));
}

TEST(LateOrder, IsNotForStepsThatCannotHaveIt) {
  const auto allows = [](Layout layout, const char* cluster, std::int64_t micro_batches) {
    return allows_late_order(test::request(test::small_gpt(2), parse_cluster(cluster), layout, micro_batches));
  };
  EXPECT_TRUE(allows({}, "dgx-a100:1", 1));
  EXPECT_TRUE(allows({.zero = 1}, "local:2", 1));
  EXPECT_FALSE(allows({}, "dgx-a100:1", 2));
  EXPECT_FALSE(allows({.zero = 2}, "dgx-a100:1", 1));
  EXPECT_FALSE(allows({.clip_grad = 1}, "dgx-a100:1", 1));
  EXPECT_FALSE(allows({.pp = 2}, "dgx-a100:1", 1));
  EXPECT_FALSE(allows({}, "gpu:2", 1));
}

}  // namespace
}  // namespace weft
