// Plans of layouts that reduce gradients after every micro-batch, after a few, or once a step: safe under every policy
// and every decision, and as large as what they hold.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/test_effort.hpp"
#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/test_decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

void expect_undamaged(const Plan& plan, std::uint64_t seed) {
  const std::optional<Violation> violation = verify_plan(plan, {.check_memory = false});
  ASSERT_FALSE(violation) << violation->message;
  const auto damage = test::find_damage(plan, seed, 2);
  ASSERT_FALSE(damage) << *damage;
}

TEST(ReduceEveryPlans, AreSafeUnderEveryPolicy) {
  const std::vector<test::NamedLayout> layouts = {
      {"dp", {}},
      {"tp, clipped", {.tp = 2, .etp = 2, .sequence_parallel = true, .clip_grad = 1}},
  };
  for (const auto& [name, base] : layouts) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const std::int64_t every : {std::int64_t{1}, std::int64_t{2}, Layout::kWholeStep}) {
        Layout layout = base;
        layout.zero = zero;
        layout.reduce_every = every;
        const PlanRequest request = test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), layout, 4);
        const SharedGraph graph = test::build(request);
        for (const std::string& policy : policy_names()) {
          if (policy == "weft") continue;  // its decisions are below
          SCOPED_TRACE(fmt::format("{}, zero {}, every {}, {}", name, zero, every, policy));
          expect_undamaged(make_whole_plan(request, graph, policy).plan(), 1);
        }
      }
    }
  }
}

TEST(ReduceEveryPlans, AreSafeInPipelinesAndWithExperts) {
  for (const int zero : {0, 1, 2}) {
    for (const std::int64_t every : {std::int64_t{1}, Layout::kWholeStep}) {
      for (const bool experts : {false, true}) {
        Layout layout{.pp = experts ? 1 : 2, .ep = experts ? 2 : 1, .zero = zero, .reduce_every = every};
        const PlanRequest request =
            test::request(experts ? test::small_moe(2) : test::small_gpt(4), parse_cluster("dgx-a100:1"), layout, 4);
        const SharedGraph graph = test::build(request);
        for (const char* policy : {"serial", "ddp", "megatron-param", "fsdp", "priority", "centauri"}) {
          SCOPED_TRACE(fmt::format("zero {}, every {}, experts {}, {}", zero, every, experts, policy));
          expect_undamaged(make_whole_plan(request, graph, policy).plan(), 1);
        }
      }
    }
  }
}

TEST(ReduceEveryPlans, AreSafeWithEveryDecision) {
  int planned = 0;
  for (int seed = 1; seed <= test::rounds(20); ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const auto draw = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    Layout layout;
    layout.tp = layout.etp = std::int64_t{1} << draw(2);
    layout.sequence_parallel = layout.tp > 1 && draw(2) == 1;
    layout.zero = static_cast<int>(draw(4));
    layout.clip_grad = static_cast<double>(draw(2));
    layout.recompute = draw(2) == 0 ? Recompute::none : Recompute::full;
    const std::int64_t every[] = {1, 2, 3, Layout::kWholeStep};
    layout.reduce_every = every[draw(4)];
    const PlanRequest request =
        test::request(draw(2) == 0 ? test::small_llama(4) : test::small_gpt(4), parse_cluster("local:4,nic=200Mb/s"),
                      layout, layout.reduction_group() * (1 + draw(3)));
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const WholePlan made = test::plan_of_drawn_decisions(request, test::build(request), draw);
    if (!find_run_order(made.unfolded()).cycle.empty()) continue;
    ++planned;
    expect_undamaged(made.plan(), static_cast<std::uint64_t>(seed));
  }
  EXPECT_GE(planned, test::rounds(20) * 9 / 10);
}

// Groups hold the gradients of all layers whole, and the activations of one micro-batch: as many bytes for groups of
// two as for groups of four.
TEST(ReduceEveryPlans, HoldTheActivationsOfOneMicroBatch) {
  const auto memory = [&](std::int64_t every) {
    const PlanRequest request = test::request(test::small_llama(6), parse_cluster("local:2"),
                                              {.micro_batch = 4, .zero = 2, .reduce_every = every}, 8);
    return static_cast<double>(
        make_whole_plan(request, test::build(request), "fsdp").plan().classes.front().memory.value);
  };
  EXPECT_NEAR(memory(4) / memory(2), 1, 0.02);
  EXPECT_GT(memory(2), memory(1));
}

}  // namespace
}  // namespace weft
