// How often gradients are reduced: what a step computes stays, and what its reductions move follows from the number of
// micro-batches that are added up before.
#include <gtest/gtest.h>

#include <map>

#include "base/error.hpp"
#include "graph/memory_bound.hpp"
#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

using test::build, test::instances, test::with_layers;

constexpr std::int64_t kReducedMicroBatches = 8;

StepGraph built_reducing(Layout layout, std::int64_t reduce_every, const char* model = "llama2-7b") {
  layout.reduce_every = reduce_every;
  StepGraph graph = build(with_layers(model, 3), "dgx-a100:1", layout, kReducedMicroBatches);
  verify_graph(graph);
  return graph;
}

double flops_of_reduced_step(const StepGraph& graph) {
  double sum = 0;
  for (const Operation& op : graph.operations) sum += model_flops(op.key).value * instances(graph, op);
  return sum;
}

// Bytes that the transfers of gradients carry in a step, by collective.
std::map<Collective, double> gradient_bytes_by_collective(const StepGraph& graph) {
  std::map<Collective, double> sum;
  for (const Operation& op : graph.operations) {
    if (op.role != Role::grad_reduce) continue;
    sum[op.communication->collective] += static_cast<double>(op.communication->bytes.value) * instances(graph, op);
  }
  return sum;
}

TEST(ReduceEvery, ComputesTheSame) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      const Layout layout{.zero = zero, .recompute = recompute};
      const double expected = flops_of_reduced_step(built_reducing(layout, 0));
      for (const std::int64_t every : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, Layout::kWholeStep}) {
        const StepGraph graph = built_reducing(layout, every);
        EXPECT_EQ(graph.micro_batches, kReducedMicroBatches / std::max<std::int64_t>(every, 1));
        // The update of ZeRO 0 to 3 is the same too: sums only travel at other times.
        EXPECT_NEAR(flops_of_reduced_step(graph) / expected, 1, 1e-12) << zero << " " << every;
      }
    }
  }
}

// With E bytes of gradients, m micro-batches and a reduction after every k of them: m/k times E are reduced and
// scattered. Once a step, ZeRO 0 reduces E for all ranks, or gathers the E that were scattered.
TEST(ReduceEvery, MovesTheGradientsOnceForEveryGroup) {
  const double all = gradient_bytes_by_collective(built_reducing({.zero = 0}, 0)).at(Collective::all_reduce);
  for (const int zero : {0, 1, 2, 3}) {
    for (const std::int64_t every : {1, 2, 4}) {
      const auto bytes = gradient_bytes_by_collective(built_reducing({.zero = zero}, every));
      const std::int64_t reductions = kReducedMicroBatches / every;
      const auto times = static_cast<double>(reductions);
      EXPECT_NEAR(bytes.at(Collective::reduce_scatter) / (times * all), 1, 1e-6) << zero << " " << every;
      EXPECT_EQ(bytes.contains(Collective::all_reduce), false);
      EXPECT_EQ(bytes.contains(Collective::all_gather), zero == 0);
      if (zero == 0) {
        EXPECT_NEAR(bytes.at(Collective::all_gather) / all, 1, 1e-6);
      }
    }
    const auto once = gradient_bytes_by_collective(built_reducing({.zero = zero}, Layout::kWholeStep));
    EXPECT_EQ(once.size(), 1u);
    EXPECT_NEAR(once.at(zero == 0 ? Collective::all_reduce : Collective::reduce_scatter) / all, 1, 1e-6);
  }
}

// ZeRO 1 and 2 differ in when gradients are reduced and in nothing else.
TEST(ReduceEvery, TurnsZeroOneAndTwoIntoEachOther) {
  for (const char* model : {"llama2-7b", "gpt2"}) {
    const StepGraph one = built_reducing({.zero = 1}, 0, model), two = built_reducing({.zero = 2}, 0, model);
    const StepGraph one_each = built_reducing({.zero = 1}, 1, model),
                    two_once = built_reducing({.zero = 2}, Layout::kWholeStep, model);
    EXPECT_TRUE(one_each.operations == two.operations && one_each.values == two.values);
    EXPECT_TRUE(two_once.operations == one.operations && two_once.values == one.values);
    EXPECT_FALSE(one.operations == two.operations);
  }
}

// Adds up in whole gradients: 4 bytes for each of E parameters, instead of those of a shard.
TEST(ReduceEvery, HoldsWholeGradientsOnceAStep) {
  const Transformer model = with_layers("llama2-7b", 3);
  Layout layout{.dp = 8, .global_batch = 8 * kReducedMicroBatches, .seq = 128, .zero = 2};
  const double each = static_cast<double>(memory_lower_bound(model, layout).state.value);
  layout.reduce_every = Layout::kWholeStep;
  const double once = static_cast<double>(memory_lower_bound(model, layout).state.value);
  layout.zero = 0;
  layout.reduce_every = 0;
  double elements = 0;
  for (const Value& value : build(model, "dgx-a100:1", {.zero = 0}, 1).values) {
    if (value.kind == ValueKind::gradient && value.accumulated) elements += static_cast<double>(value.elements());
  }
  EXPECT_NEAR((once - each) / (4 * elements * 7 / 8), 1, 1e-6);
}

TEST(ReduceEvery, RefusesWhatItCannotDo) {
  const Transformer model = with_layers("llama2-7b", 4);
  const auto refusal = [&](Layout layout) -> std::string {
    layout.dp = 8 / (layout.tp * layout.pp);
    layout.global_batch = layout.dp * kReducedMicroBatches;
    layout.seq = 128;
    try {
      validate(layout, model, 8);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({.reduce_every = 2}), "");
  EXPECT_EQ(refusal({.pp = 2, .reduce_every = 1}), "");
  EXPECT_EQ(refusal({.reduce_every = 3}), "--reduce-every 3: does not divide the 8 micro-batches of a step");
  EXPECT_EQ(refusal({.pp = 2, .reduce_every = 2}), "--reduce-every 2: with --pp 2 must be 1 or step");
  EXPECT_NE(refusal({.zero = 2, .layer_group = 2, .reduce_every = Layout::kWholeStep}).find("--layer-group 2"),
            std::string::npos);
  EXPECT_NE(refusal({.reduce_every = -2}).find("--reduce-every"), std::string::npos);
}

}  // namespace
}  // namespace weft
