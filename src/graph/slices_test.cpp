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

// Context-parallel ranks share out every slice: so many tokens in all, and in attention each as many pairs.
TEST(Slices, AreSharedOutOverContextParallelRanks) {
  for (const char* const model : {"gpt2", "llama2-70b"}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      Layout layout{.cp = 2, .pp = 2, .recompute = recompute};
      const double expected = flops_with_slices(build(with_layers(model, 4), "dgx-a100:1", layout));
      for (const std::vector<std::int64_t>& slices : {std::vector<std::int64_t>{32, 32}, {40, 18, 6}}) {
        layout.slice_tokens = slices;
        const StepGraph graph = build(with_layers(model, 4), "dgx-a100:1", layout);
        verify_graph(graph);
        EXPECT_NEAR(flops_with_slices(graph) / expected, 1, 1e-12) << model << " " << slices.size();
      }
    }
  }
}

// Over ranks travel the keys and values of a slice, once forward; what attention needs of them again in backward is
// joined from what is there. Their gradients are complete, and summed over ranks, when the slice's own turn comes.
TEST(Slices, ExchangeTheirOwnKeysOverContextParallelRanks) {
  const Layout layout{.cp = 2, .pp = 2, .slice_tokens = {24, 24, 16}};
  const StepGraph graph = build(with_layers("llama2-7b", 2), "dgx-a100:1", layout);
  const std::int64_t row = std::int64_t{2} * 2 * 4096;  // bytes of a key and a value
  std::map<std::tuple<Role, Phase, std::int32_t>, std::int64_t> found;
  for (const Operation& op : graph.operations) {
    if (op.layer != 0 || !op.is_transfer() || (op.role != Role::kv_gather && op.role != Role::kv_reduce)) continue;
    EXPECT_TRUE((found.emplace(std::tuple(op.role, op.phase, op.turn), op.communication->bytes.value).second));
  }
  const decltype(found) expected = {
      {{Role::kv_gather, Phase::forward, 0}, 24 * row},    {{Role::kv_gather, Phase::forward, 1}, 24 * row},
      {{Role::kv_gather, Phase::forward, 2}, 16 * row},    {{Role::kv_reduce, Phase::input_grad, 0}, 24 * row},
      {{Role::kv_reduce, Phase::input_grad, 1}, 24 * row}, {{Role::kv_reduce, Phase::input_grad, 2}, 16 * row},
  };
  EXPECT_EQ(found, expected);
}

Transformer small_mixture(double capacity_factor) {
  Transformer model = with_layers("mixtral-8x7b", 2);
  model.experts->capacity_factor = capacity_factor;
  return model;
}

// Two choices of 64 tokens among 8 experts, with a factor of 1.25: an expert takes 20 choices of a sequence. Of a slice
// of 16 tokens it may be 16, of one of 48 it may be 20.
TEST(Slices, HaveSlotsForAllChoicesThatAnExpertMayTake) {
  const Layout layout{.pp = 2, .ep = 4, .slice_tokens = {16, 48}};
  for (const auto& [factor, of_first, of_second] :
       {std::tuple(1.25, 16, 20), std::tuple(4.0, 16, 48), std::tuple(0.0, 4, 12)}) {
    const StepGraph graph = build(small_mixture(factor), "dgx-a100:1", layout);
    verify_graph(graph);
    for (const Operation& op : graph.operations) {
      if (op.role != Role::dispatch || op.phase != Phase::forward) continue;
      EXPECT_EQ(graph.value(write_of(op, Operand::output)).shape.front(), 8 * (op.turn == 0 ? of_first : of_second));
    }
  }
}

// Gates pass on how many choices have fallen on each expert. The gradient of the balance loss needs those of all
// slices, which the last gate has.
TEST(Slices, PassOnTheLoadsOfExperts) {
  for (const Recompute recompute : {Recompute::none, Recompute::full, Recompute::local}) {
    const Layout layout{.pp = 2, .ep = 4, .slice_tokens = {16, 32, 16}, .recompute = recompute};
    const StepGraph graph = build(small_mixture(1.25), "dgx-a100:1", layout);
    verify_graph(graph);
    const std::vector<std::vector<OpId>> writers = writers_of(graph);
    int gates = 0;
    for (const Operation& op : graph.operations) {
      if (op.role != Role::gate) continue;
      ++gates;
      const ValueId loads = find_read(op, Operand::loads);
      const bool back = op.phase == Phase::input_grad;
      ASSERT_EQ(loads.valid(), back || op.turn > 0);
      if (!loads.valid()) continue;
      const Operation& counted = graph.op(writers[loads.index()].front());
      EXPECT_EQ(counted.phase, Phase::forward);
      EXPECT_EQ(counted.turn, back ? 2 : op.turn - 1);
    }
    EXPECT_EQ(gates, 2 * 3 * (recompute == Recompute::none ? 2 : 3));
  }
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
