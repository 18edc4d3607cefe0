// Secondary shards under every policy: plans are safe, and backward gathers inside the groups that keep parameters.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

std::string verdict_on(const Plan& plan) {
  const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
  return found ? found->message : "safe";
}

// On 16 devices.
std::vector<test::NamedLayout> kept_layouts() {
  return {
      {"dp 16 by 8", {.zero = 3, .zero_secondary = 8}},
      {"dp 16 by 2, clipped, recomputed",
       {.zero = 3, .zero_secondary = 2, .recompute = Recompute::full, .clip_grad = 1}},
      {"dp 16 in 8 by 4", {.zero = 3, .zero_shards = 8, .zero_secondary = 4}},
      {"tp 2, dp 8 by 4", {.tp = 2, .etp = 2, .zero = 3, .zero_secondary = 4, .sequence_parallel = true}},
      {"cp 2, dp 8 by 8", {.cp = 2, .zero = 3, .zero_secondary = 8}},
  };
}

class SecondaryShardPlans : public ::testing::TestWithParam<std::string> {};

TEST_P(SecondaryShardPlans, AreSafeAndGatherBackwardsParametersInside) {
  std::size_t turn = GetParam().size();
  for (const auto& [name, layout] : kept_layouts()) {
    ++turn;
    const ClusterSpec cluster = turn % 2 == 0 ? parse_cluster("dgx-a100:2") : test::uneven_nics();
    SCOPED_TRACE(fmt::format("{}, {}", name, cluster.name));
    const PlanRequest r = test::request(turn % 3 == 0 ? test::small_gpt() : test::small_llama(), cluster, layout, 2);
    const Plan plan = make_plan(r, test::build(r), GetParam());
    ASSERT_EQ(verdict_on(plan), "safe");
    EXPECT_EQ(test::find_damage(plan, 1, 2).value_or("safe"), "safe");
    int inside = 0;
    for (const Operation& op : plan.graph.operations) {
      if (op.role != Role::param_gather) continue;
      const bool backward = op.phase != Phase::forward;
      EXPECT_EQ(op.communication->group == GroupKind::secondary, backward) << describe(op);
      inside += backward ? 1 : 0;
    }
    EXPECT_GT(inside, 0);
  }
}

std::vector<std::string> sharding_policies() {
  std::vector<std::string> names = policy_names();
  std::erase_if(names, [](const std::string& name) { return searches(name) || name == "lancet"; });
  return names;
}
INSTANTIATE_TEST_SUITE_P(Policies, SecondaryShardPlans, ::testing::ValuesIn(sharding_policies()), [](const auto& test) {
  std::string name = test.param;
  std::erase(name, '-');
  return name;
});

TEST(SecondaryShardPlansOfTheSearch, AreSafeWhateverItDecides) {
  std::mt19937_64 random(11);
  int planned = 0;
  for (const auto& [name, layout] : kept_layouts()) {
    const PlanRequest r = test::request(test::small_gpt(), parse_cluster("dgx-a100:2"), layout, 4);
    const SharedGraph graph = test::build(r);
    const DecisionSpace space(r, graph);
    for (int i = 0; i < 4; ++i) {
      Decisions decisions = space.start();
      for (std::size_t d = 0; i > 0 && d < DecisionSpace::kDimensions; ++d) {
        decisions.chosen[d] = random() % space.options(d);
      }
      const WholePlan made = overlapped_plan(r, graph, "weft", space.overlap(decisions));
      if (!find_run_order(made.unfolded()).cycle.empty()) continue;
      ++planned;
      SCOPED_TRACE(fmt::format("{}, decision {}", name, i));
      ASSERT_EQ(verdict_on(made.plan()), "safe");
    }
  }
  EXPECT_GE(planned, 15);
}

}  // namespace
}  // namespace weft
