// Blocks of kinds: what a pipeline's order names becomes a block, also where a schedule splits backward in two.
#include "planner/schedule/blocks.hpp"

#include <gtest/gtest.h>

#include <set>

#include "plan/memory/place.hpp"
#include "plan/memory/use.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

// As a zero-bubble schedule has it (Qi et al. 2024): gradients of inputs go on at once, those of weights wait, here
// until the next backward has passed on its own.
std::vector<PipelinePass> split(const std::vector<PipelinePass>& whole) {
  std::vector<PipelinePass> order, waiting;
  for (PipelinePass slot : whole) {
    if (slot.kind != BlockKind::backward) {
      order.push_back(slot);
      continue;
    }
    slot.kind = BlockKind::input_grad;
    order.push_back(slot);
    order.insert(order.end(), waiting.begin(), waiting.end());
    slot.kind = BlockKind::weight_grad;
    waiting = {slot};
  }
  order.insert(order.end(), waiting.begin(), waiting.end());
  return order;
}

Plan split_plan(const Transformer& model, const Layout& layout) {
  Plan plan = test::serial(model, "local:4", layout, 8);
  PipelineOrders of_stages = pipeline_orders(plan.layout);
  for (std::vector<PipelinePass>& order : of_stages) order = split(order);
  order_blocks(plan, of_stages);
  place_values(plan);
  return plan;
}

TEST(Blocks, SayWhatTheyAreFor) {
  const Plan plan =
      test::serial(test::small_gpt(8), "local:4", {.pp = 4, .vpp = 2, .schedule = PipelineSchedule::interleaved}, 8);
  for (const ClassPlan& c : plan.classes) {
    std::vector<std::string> names;
    for (const IssueBlock& block : c.blocks) names.push_back(name_of(block));
    EXPECT_EQ(names, (std::vector<std::string>{"forward 0", "backward 0", "forward 1", "backward 1", "update"}));
  }
}

TEST(Blocks, ASplitBackwardHasABlockForEachHalf) {
  const Plan plan = split_plan(test::small_gpt(8), {.pp = 4});
  for (const ClassPlan& c : plan.classes) {
    for (const IssueBlock& block : c.blocks) {
      ASSERT_FALSE(block.operations.empty());
      for (const OpId id : block.operations) {
        const Phase phase = plan.graph.op(id).phase;
        const BlockKind expected = phase == Phase::forward       ? BlockKind::forward
                                   : phase == Phase::optimizer   ? BlockKind::update
                                   : phase == Phase::weight_grad ? BlockKind::weight_grad
                                                                 : BlockKind::input_grad;
        EXPECT_EQ(block.kind, expected) << describe(plan.graph.op(id));
      }
    }
  }
}

// With full recomputation what a norm's weight gradient reads would stay only for it. It is a moment's work, so it is
// done at once, unless gradients are reduced after every micro-batch.
TEST(Blocks, GradientsOfNormsComeAtOnceWhereAllIsComputedAgain) {
  const auto blocks_of_norms = [](const Layout& layout) {
    const Plan plan = test::serial(test::small_llama(), "local:4", layout, 8);
    std::set<BlockKind> kinds;
    for (const ClassPlan& c : plan.classes) {
      for (const IssueBlock& block : c.blocks) {
        for (const OpId id : block.operations) {
          const Operation& op = plan.graph.op(id);
          if (op.phase == Phase::weight_grad && op.key.kind == OpKind::norm) kinds.insert(block.kind);
        }
      }
    }
    return kinds;
  };
  using enum PipelineSchedule;
  const std::set<BlockKind> at_once{BlockKind::input_grad}, later{BlockKind::weight_grad};
  EXPECT_EQ(blocks_of_norms({.pp = 2, .recompute = Recompute::full, .schedule = zb_h1}), at_once);
  EXPECT_EQ(blocks_of_norms({.pp = 2, .recompute = Recompute::selective, .schedule = zb_h1}), later);
  EXPECT_EQ(blocks_of_norms({.pp = 2, .schedule = zb_h1}), later);
  EXPECT_EQ(blocks_of_norms({.pp = 2, .zero = 2, .recompute = Recompute::full, .schedule = zb_h1}), later);
}

TEST(Blocks, PlansWithASplitBackwardAreSafe) {
  for (const Transformer& model : {test::small_gpt(8), test::small_moe(8)}) {
    for (const Layout& layout :
         {Layout{.pp = 4}, Layout{.pp = 4, .vpp = 2, .schedule = PipelineSchedule::interleaved}, Layout{.pp = 2}}) {
      const Plan plan = split_plan(model, layout);
      const auto violation = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
      EXPECT_FALSE(violation.has_value()) << violation->message;
      EXPECT_EQ(test::find_damage(plan, 1, 2).value_or("safe"), "safe");
    }
  }
}

// A pass of 1F1B is in flight from its forward to its backward: p - s of them on stage s of p. Gradients of weights
// that wait for one more backward keep one more.
TEST(Blocks, WeightGradientsThatWaitHoldTheirPass) {
  const Plan plan = split_plan(test::small_gpt(8), {.pp = 4});
  const std::vector<MemoryUse> use = memory_use(plan);
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    EXPECT_EQ(use[c].peak.in_flight, 4 - plan.graph.classes[c].stage + 1) << c;
  }
}

}  // namespace
}  // namespace weft
