// Micro-batches that pass layers in groups: what a step computes stays, what ZeRO gathers and reduces becomes less.
#include <gtest/gtest.h>

#include <map>

#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

using test::build, test::instances, test::with_layers;

constexpr std::int64_t kMicroBatches = 8;

double flops_of_step(const StepGraph& graph) {
  double sum = 0;
  for (const Operation& op : graph.operations) sum += model_flops(op.key).value * instances(graph, op);
  return sum;
}

// Gathers of a layer in a step, by its number; -1 is the embedding or the head.
std::map<std::pair<std::int32_t, Role>, double> executions(const StepGraph& graph, Role role) {
  std::map<std::pair<std::int32_t, Role>, double> found;
  for (const Operation& op : graph.operations) {
    if (op.role == role && op.per_micro_batch)
      found[{op.layer, op.subject}] += static_cast<double>(graph.micro_batches);
  }
  return found;
}

TEST(LayerGroup, ComputesTheSame) {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const Layout layout{.zero = 3, .recompute = recompute};
    const double expected = flops_of_step(build(with_layers("llama2-7b", 3), "dgx-a100:1", layout, kMicroBatches));
    for (const std::int64_t group : {2, 4, 8}) {
      Layout grouped = layout;
      grouped.layer_group = group;
      const StepGraph graph = build(with_layers("llama2-7b", 3), "dgx-a100:1", grouped, kMicroBatches);
      verify_graph(graph);
      EXPECT_EQ(graph.micro_batches, kMicroBatches / group);
      EXPECT_NEAR(flops_of_step(graph) / expected, 1, 1e-12) << group;
    }
  }
}

// Of m micro-batches in groups of k, a layer is gathered m/k times forward and m/k times backward, and its gradient is
// reduced m/k times. The head goes forward and at once backward, so its gather serves both.
TEST(LayerGroup, GathersAndReducesOnceForAGroup) {
  for (const std::int64_t group : {2, 4, 8}) {
    const double groups = static_cast<double>(kMicroBatches / group);
    const StepGraph graph =
        build(with_layers("llama2-7b", 3), "dgx-a100:1", {.zero = 3, .layer_group = group}, kMicroBatches);
    const auto gathers = executions(graph, Role::param_gather), reductions = executions(graph, Role::grad_reduce);
    ASSERT_TRUE(gathers.contains({2, Role::qkv}) && gathers.contains({-1, Role::head}));
    for (const auto& [what, times] : gathers) {
      EXPECT_EQ(times, what.first >= 0 ? 2 * groups : groups) << what.first << " " << name_of(what.second);
    }
    EXPECT_EQ(reductions.size(), gathers.size());
    for (const auto& [what, times] : reductions) EXPECT_EQ(times, groups) << name_of(what.second);
  }
}

TEST(LayerGroup, KeepsTheHeadsTwoUsesOfATiedEmbeddingApart) {
  const StepGraph graph = build(with_layers("gpt2", 2), "dgx-a100:1", {.zero = 2, .layer_group = 4}, kMicroBatches);
  verify_graph(graph);
  const auto reductions = executions(graph, Role::grad_reduce);
  EXPECT_EQ(reductions.at({-1, Role::embedding}), 2);
  EXPECT_EQ(reductions.at({-1, Role::head}), 2);
  EXPECT_FALSE(executions(graph, Role::param_gather).contains({0, Role::qkv}));  // ZeRO 2 gathers after the update
}

}  // namespace
}  // namespace weft
