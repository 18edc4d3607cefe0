// The verifier accepts what the search of policy `weft` looks at, over a broad matrix of models, layouts and clusters
// and points of the decision space drawn at random; and a run with random timings agrees.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/test_effort.hpp"
#include "graph/operation_part.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

Overlap drawn(const DecisionSpace& space, std::mt19937_64& random, bool pairs) {
  Decisions decisions = space.start();
  for (std::size_t d = 0; d < DecisionSpace::kDimensions; ++d) {
    decisions.chosen[d] = static_cast<std::size_t>(random() % space.options(d));
  }
  if (pairs) {
    decisions.chosen[DecisionSpace::kPairs] = space.options(DecisionSpace::kPairs) - 1;
    decisions.chosen[DecisionSpace::kWeave] = 0;
  }
  Overlap overlap = space.overlap(decisions);
  overlap.weave.visits = std::min<std::int64_t>(overlap.weave.visits, 2000);
  return overlap;
}

class AcceptsWoven : public ::testing::TestWithParam<int> {};

TEST_P(AcceptsWoven, PlansOfDecisionsDrawnAtRandom) {
  const std::vector<Transformer> models{test::small_gpt(), test::small_llama(), test::small_moe(), test::small_mla()};
  const Transformer& model = models[static_cast<std::size_t>(GetParam())];
  const std::vector<ClusterSpec> clusters{parse_cluster("dgx-a100:2"), test::uneven_nics(),
                                          parse_cluster("local:16,nic=200Mb/s")};
  std::mt19937_64 random(static_cast<std::uint64_t>(GetParam()) + 1);
  int cut = 0, paired = 0, turn = GetParam();
  for (const auto& [name, base] : test::layouts()) {
    if (base.ep > 1 && !model.experts) continue;
    for (int zero = 0; zero <= 3; ++zero, ++turn) {
      Layout layout = base;
      layout.zero = zero;
      layout.micro_batch = 1 << random() % 3;
      layout.recompute = static_cast<Recompute>(turn % 3);
      if (turn % 6 == 2) layout.recompute_layers = {1};
      layout.clip_grad = turn / 2 % 2;
      const ClusterSpec& cluster = clusters[turn % 3];
      SCOPED_TRACE(fmt::format("{}, {}, zero {}, {}, turn {}", model.name, name, zero, cluster.name, turn));
      const PlanRequest r = test::request(model, cluster, layout, layout.pp > 4 ? 3 : layout.pp == 1 ? 2 : 4);
      const SharedGraph graph = test::build(r);
      const DecisionSpace space(r, graph);
      for (int draw = 0; draw < test::rounds(3); ++draw) {
        const WholePlan made = overlapped_plan(r, graph, "weft", drawn(space, random, (turn + draw) % 2 == 0));
        const auto found = verify_plan(made, {.memory_limit = {}, .check_memory = false});
        ASSERT_EQ(found ? found->message : "safe", "safe");
        const bool has_parts = std::any_of(made.plan().graph.operations.begin(), made.plan().graph.operations.end(),
                                           [](const Operation& op) { return op.per_micro_batch && is_part(op); });
        cut += has_parts ? 1 : 0;
        paired += std::any_of(made.plan().classes.begin(), made.plan().classes.end(), has_sections) ? 1 : 0;
        if ((turn + draw) % 5 == 0) {
          EXPECT_EQ(test::find_damage(made.plan(), random(), 1).value_or("safe"), "safe");
        }
      }
    }
  }
  EXPECT_GE(cut, test::rounds(10));
  EXPECT_GE(paired, test::rounds(10));
}

INSTANTIATE_TEST_SUITE_P(Models, AcceptsWoven, ::testing::Range(0, 4));

}  // namespace
}  // namespace weft
