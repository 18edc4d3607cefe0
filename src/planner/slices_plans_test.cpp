// Plans of layouts in which sequences pass the pipeline in slices: safe under every policy and every decision, and
// small.
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

void expect_slices_safe(const Plan& plan, std::uint64_t seed) {
  const std::optional<Violation> violation = verify_plan(plan, {.check_memory = false});
  ASSERT_FALSE(violation) << violation->message;
  const auto damage = test::find_damage(plan, seed, 2);
  ASSERT_FALSE(damage) << *damage;
}

Transformer latent_without_experts() {
  Transformer model = test::small_mla(4);
  model.experts.reset();
  return model;
}

TEST(SlicesPlans, AreSafeUnderEveryPolicy) {
  const std::vector<test::NamedLayout> layouts = {
      {"gpipe", {.pp = 4, .slice_tokens = {8, 8, 8, 8}, .schedule = PipelineSchedule::gpipe}},
      {"1f1b", {.pp = 4, .slice_tokens = {8, 8, 8, 8}}},
      {"zb-h1", {.pp = 4, .slice_tokens = {8, 8, 8, 8}, .schedule = PipelineSchedule::zb_h1}},
      {"zb-h2, uneven, recomputing",
       {.pp = 2, .slice_tokens = {20, 7, 5}, .recompute = Recompute::full, .schedule = PipelineSchedule::zb_h2}},
      {"uneven, recomputing", {.pp = 2, .slice_tokens = {20, 7, 5}, .recompute = Recompute::full}},
      {"tp, zero 1, clipped",
       {.tp = 2, .pp = 2, .etp = 2, .zero = 1, .slice_tokens = {16, 10, 6}, .sequence_parallel = true, .clip_grad = 1}},
  };
  for (const auto& [name, layout] : layouts) {
    for (const Transformer& model : {test::small_gpt(4), latent_without_experts()}) {
      const PlanRequest request = test::request(model, parse_cluster("dgx-a100:1"), layout, 3);
      const SharedGraph graph = test::build(request);
      for (const std::string& policy : policy_names()) {
        if (policy == "weft") continue;  // its decisions are below
        SCOPED_TRACE(fmt::format("{}, {}, {}", model.name, name, policy));
        expect_slices_safe(make_whole_plan(request, graph, policy).plan(), 1);
      }
    }
  }
}

// Experts behind them, or context-parallel ranks that share out every slice.
TEST(SlicesPlans, OfExpertsAndOfContextParallelRanksAreSafe) {
  const std::vector<test::NamedLayout> layouts = {
      {"ep", {.pp = 2, .ep = 4, .slice_tokens = {20, 7, 5}}},
      {"ep, uneven, zb-h1, zero 1",
       {.pp = 2,
        .ep = 2,
        .expert_exchange = ExpertExchange::uneven,
        .zero = 1,
        .slice_tokens = {16, 16},
        .clip_grad = 1,
        .schedule = PipelineSchedule::zb_h1}},
      {"ep, tp, recomputing",
       {.tp = 2,
        .pp = 2,
        .ep = 2,
        .etp = 2,
        .slice_tokens = {16, 10, 6},
        .sequence_parallel = true,
        .recompute = Recompute::full}},
      {"cp", {.cp = 2, .pp = 2, .slice_tokens = {20, 8, 4}}},
      {"cp, zb-h2, recomputing",
       {.cp = 2,
        .pp = 2,
        .zero = 1,
        .slice_tokens = {16, 16},
        .recompute = Recompute::full,
        .schedule = PipelineSchedule::zb_h2}},
      {"cp and ep", {.cp = 2, .pp = 2, .ep = 4, .zero = 1, .slice_tokens = {16, 10, 6}}},
  };
  for (const auto& [name, layout] : layouts) {
    for (const Transformer& model : {test::small_moe(4), test::small_mla(4)}) {
      const PlanRequest request = test::request(model, parse_cluster("dgx-a100:1"), layout, 3);
      const SharedGraph graph = test::build(request);
      for (const std::string& policy : policy_names()) {
        if (policy == "weft") continue;  // its decisions are below
        SCOPED_TRACE(fmt::format("{}, {}, {}", model.name, name, policy));
        expect_slices_safe(make_whole_plan(request, graph, policy).plan(), 1);
      }
    }
  }
}

TEST(SlicesPlans, AreSafeWithEveryDecision) {
  int planned = 0;
  for (int seed = 1; seed <= test::rounds(40); ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const auto draw = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    Layout layout;
    layout.tp = layout.etp = std::int64_t{1} << draw(2);
    if (layout.tp == 1) layout.cp = std::int64_t{1} << draw(2);
    layout.pp = 2;
    layout.sequence_parallel = layout.tp > 1 && draw(2) == 1;
    layout.zero = static_cast<int>(draw(2));
    layout.clip_grad = static_cast<double>(draw(2));
    layout.recompute = draw(2) == 0 ? Recompute::none : Recompute::full;
    using enum PipelineSchedule;
    layout.schedule = std::vector{gpipe, one_f_one_b, zb_h1, zb_h2, searched}[static_cast<std::size_t>(draw(5))];
    const std::int64_t first = 2 + 2 * draw(7), second = 2 + 2 * draw(7);
    layout.slice_tokens = {first, second, 32 - first - second};
    const Transformer model =
        std::vector{test::small_llama(4), test::small_gpt(4), test::small_moe(4)}[static_cast<std::size_t>(draw(3))];
    if (model.experts && layout.tp == 1) layout.ep = std::int64_t{1} << draw(2);
    const PlanRequest request = test::request(model, parse_cluster("local:4,nic=200Mb/s"), layout, 1 + draw(3));
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const WholePlan made = test::plan_of_drawn_decisions(request, test::build(request), draw);
    if (!find_run_order(made.unfolded()).cycle.empty()) continue;
    ++planned;
    expect_slices_safe(made.plan(), static_cast<std::uint64_t>(seed));
  }
  EXPECT_GE(planned, test::rounds(40) * 9 / 10);
}

// Slices take turns in the memory of what they leave for backward: the first of p stages holds p + n - 1 of them, and
// one more while a forward and a backward alternate.
TEST(SlicesPlans, HoldNoMoreThanTheSlicesInFlight) {
  const auto request = [](std::int64_t slices) {
    Layout layout{.pp = 4, .seq = 64};
    if (slices > 1) layout.slice_tokens.assign(static_cast<std::size_t>(slices), 64 / slices);
    return test::request(test::small_llama(8), parse_cluster("local:4"), layout, 12);
  };
  const auto memory = [&](std::int64_t slices) {
    const PlanRequest r = request(slices);
    return make_whole_plan(r, test::build(r), "serial").plan().classes.front().memory.value;
  };
  const std::int64_t of_one = memory_lower_bound(request(1).model, request(1).layout).activations.value / 4;
  const double saved = static_cast<double>(memory(1) - memory(4)) / static_cast<double>(of_one);
  EXPECT_GE(saved, 4 - (4 + 4 - 1) / 4.0 - 0.3);  // scratch is smaller as well
}

}  // namespace
}  // namespace weft
