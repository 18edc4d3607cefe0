// Sequences that pass a pipeline in slices: what a step computes stays, and attention reads what earlier slices left.
#include <gtest/gtest.h>

#include <map>

#include "graph/memory_bound.hpp"
#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

using test::build, test::filled, test::instances, test::with_layers;

double flops_with_slices(const StepGraph& graph) {
  double sum = 0;
  for (const Operation& op : graph.operations) sum += model_flops(op.key).value * instances(graph, op);
  return sum;
}

// A slice of q tokens behind b others has b q + q^2 / 2 pairs to look at where a whole sequence of s has s^2 / 2, and
// these add up.
TEST(Slices, ComputeWhatWholeSequencesDo) {
  for (const char* const model : {"gpt2", "llama2-70b"}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      Layout layout{.tp = 2, .pp = 2, .recompute = recompute};
      const double expected = flops_with_slices(build(with_layers(model, 4), "dgx-a100:1", layout));
      for (const std::vector<std::int64_t>& slices :
           {std::vector<std::int64_t>{32, 32}, {16, 16, 16, 16}, {40, 20, 4}, {1, 63}}) {
        layout.slice_tokens = slices;
        const StepGraph graph = build(with_layers(model, 4), "dgx-a100:1", layout);
        verify_graph(graph);
        EXPECT_EQ(graph.micro_batches, 2);
        EXPECT_NEAR(flops_with_slices(graph) / expected, 1, 1e-12) << model << " " << slices.size();
      }
    }
  }
}

// The first slice has its own keys and values only. Each of the others joins those of all slices up to its own, once in
// forward and once in backward; every slice adds to the gradients of as many.
TEST(Slices, ReadTheKeysAndValuesOfThoseBefore) {
  const Layout layout{.pp = 2, .slice_tokens = {24, 24, 16}};
  const StepGraph graph = build(with_layers("llama2-7b", 2), "dgx-a100:1", layout);
  std::map<std::tuple<Role, Phase, std::int32_t>, std::pair<std::int64_t, std::int64_t>> found;  // values, elements
  for (const Operation& op : graph.operations) {
    if (op.layer != 0 || (op.role != Role::kv_gather && op.role != Role::kv_reduce)) continue;
    const bool joins = op.role == Role::kv_gather;
    const auto values = static_cast<std::int64_t>(joins ? op.reads.size() : op.writes.size());
    found[{op.role, op.phase, op.turn}] = {values, op.key.dims[0]};
  }
  const std::int64_t width = 2 * 4096;  // of a key and a value
  const decltype(found) expected = {
      {{Role::kv_gather, Phase::forward, 1}, {2, 48 * width}},
      {{Role::kv_gather, Phase::forward, 2}, {3, 64 * width}},
      {{Role::kv_gather, Phase::input_grad, 1}, {2, 48 * width}},
      {{Role::kv_gather, Phase::input_grad, 2}, {3, 64 * width}},
      {{Role::kv_reduce, Phase::input_grad, 0}, {1, 24 * width}},
      {{Role::kv_reduce, Phase::input_grad, 1}, {2, 48 * width}},
      {{Role::kv_reduce, Phase::input_grad, 2}, {3, 64 * width}},
  };
  EXPECT_EQ(found, expected);
}

// Where layers are computed again, what a slice needs of the others is kept.
TEST(Slices, KeepKeysAndValuesThatRecomputationNeeds) {
  const Layout layout{.pp = 2, .slice_tokens = {32, 32}, .recompute = Recompute::full};
  const StepGraph graph = build(with_layers("llama2-7b", 2), "dgx-a100:1", layout);
  const std::vector<std::vector<OpId>> writers = writers_of(graph);
  int joined = 0;
  for (const Operation& op : graph.operations) {
    if (op.role != Role::kv_gather || op.phase != Phase::recompute) continue;
    ++joined;
    ASSERT_EQ(op.reads.size(), 2u);
    EXPECT_EQ(graph.op(writers[op.reads[0].value.index()].front()).phase, Phase::forward);
    EXPECT_EQ(graph.op(writers[op.reads[1].value.index()].front()).phase, Phase::recompute);
  }
  EXPECT_EQ(joined, 2);  // one in each layer
}

// A stage of 1F1B holds p micro-batches, or p + n - 1 slices of which n are one.
TEST(Slices, LeaveFewerActivationsInFlight) {
  const Transformer model = with_layers("llama2-7b", 8);
  const Layout whole = filled({.pp = 8}, 8, 16);
  Layout cut = whole;
  cut.slice_tokens.assign(4, 16);
  const auto held = [&](const Layout& layout) {
    return static_cast<double>(memory_lower_bound(model, layout).activations.value);
  };
  EXPECT_NEAR(held(cut) / held(whole), (8 + 4 - 1) / 4.0 / 8, 1e-3);
}

}  // namespace
}  // namespace weft
