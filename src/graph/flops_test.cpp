// Arithmetic of the graph against the papers' formulas in model/counts.
#include <gtest/gtest.h>

#include "graph/test_graphs.hpp"
#include "model/counts.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

double flops_of_step(const StepGraph& graph) {
  double sum = 0;
  for (const Operation& op : graph.operations) sum += test::instances(graph, op) * model_flops(op.key).value;
  return sum;
}

// Counts are integers below 2^63 added as doubles: equal but for rounding.
void expect_equal(double found, Flops expected, const std::string& where) {
  EXPECT_NEAR(found / expected.value, 1, 1e-12) << where;
}

struct Case {
  const char* model;
  Layout layout;
};

// 8 devices, 2 micro-batches of 2 sequences of 512. Vocabularies divide by 128 * tp, expert loads divide evenly.
std::vector<Case> cases() {
  return {
      {"megatron-1.7b", {}},
      {"megatron-1.7b", {.tp = 8}},
      {"megatron-1.7b", {.tp = 4, .sequence_parallel = true}},
      {"megatron-1.7b", {.tp = 2, .cp = 2, .pp = 2}},
      {"megatron-1.7b", {.pp = 4, .vpp = 2, .schedule = PipelineSchedule::interleaved}},
      {"llama2-7b", {.pp = 2, .zero = 3}},
      {"llama2-7b", {.tp = 2, .cp = 4}},
      {"llama2-70b", {.tp = 2, .pp = 4, .stage_layers = {3, 2, 2, 1}}},
      {"mixtral-8x7b", {.ep = 8}},
      {"mixtral-8x7b", {.tp = 2, .pp = 2, .ep = 2, .etp = 2, .sequence_parallel = true}},
      {"mixtral-8x7b", {.tp = 2, .ep = 4, .etp = 1, .sequence_parallel = true}},
      {"mixtral-8x7b", {.ep = 2, .etp = 4}},
      {"mixtral-8x7b", {.ep = 2, .etp = 2}},
      {"qwen3-30b-a3b", {.cp = 2, .ep = 4}},
      {"deepseek-v3", {.ep = 8}},
      {"deepseek-v3", {.cp = 2, .pp = 2, .ep = 2}},
  };
}

TEST(ModelFlops, SumToTheFormula) {
  for (Case c : cases()) {
    const Transformer model = with_layers(c.model, 8);
    c.layout.micro_batch = 2;
    c.layout.seq = 512;
    const std::int64_t micro_batches = c.layout.vpp > 1 ? 4 : 2;
    const Layout filled = test::filled(c.layout, 8, micro_batches);
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full, Recompute::local}) {
      c.layout.recompute = recompute;
      const StepGraph graph = build(model, "dgx-a100:1", c.layout, micro_batches);
      expect_equal(flops_of_step(graph), hardware_flops(model, 512, filled.global_batch, recompute),
                   fmt::format("{} tp {} pp {} cp {} ep {} recompute {}", c.model, c.layout.tp, c.layout.pp,
                               c.layout.cp, c.layout.ep, name_of(recompute)));
    }
  }
}

// Layers are alike, so a part of them takes that part of what all of them take again.
TEST(ModelFlops, OfRecomputedLayersAreTheirShare) {
  const Transformer model = with_layers("llama2-7b", 8);
  Layout layout{.pp = 2, .vpp = 2, .micro_batch = 2, .seq = 512, .schedule = PipelineSchedule::interleaved};
  const double none = hardware_flops(model, 512, test::filled(layout, 8, 4).global_batch, Recompute::none).value,
               all = hardware_flops(model, 512, test::filled(layout, 8, 4).global_batch, Recompute::full).value;
  layout.recompute = Recompute::full;
  for (const auto& [layers, share] :
       {std::pair(std::vector<std::int64_t>{1}, 0.5), {{2, 0, 1, 0}, 0.375}, {{2}, 1.0}}) {
    layout.recompute_layers = layers;
    expect_equal(flops_of_step(build(model, "dgx-a100:1", layout, 4)), Flops{none + share * (all - none)},
                 fmt::format("{} of the layers", share));
    EXPECT_NEAR(hardware_flops(model, 512, test::filled(layout, 8, 4).global_batch, Recompute::full,
                               recomputed_layers(layout, model))
                    .value,
                none + share * (all - none), 1e-9 * all);
  }
}

TEST(ModelFlops, WithoutRecomputeAreThreeForwardPasses) {
  const Transformer model = with_layers("megatron-1.7b", 8);
  const StepGraph graph = build(model, "local:1", {.seq = 512});
  double forward = 0, input_grad = 0, weight_grad = 0;
  for (const Operation& op : graph.operations) {
    const double flops = test::instances(graph, op) * model_flops(op.key).value;
    if (op.phase == Phase::forward) forward += flops;
    if (op.phase == Phase::input_grad) input_grad += flops;
    if (op.phase == Phase::weight_grad) weight_grad += flops;
  }
  expect_equal(forward, forward_flops(model, 512, 2), "forward");
  // dX holds the four attention products of backward, so dW lacks them: 24 B s l h^2 (s/6h) * 2 more and less.
  const double core = 2.0 * 512 * 8 * 4 * 512.0 * 2304;
  expect_equal(input_grad, {forward + core}, "input_grad");
  expect_equal(weight_grad, {forward - core}, "weight_grad");
}

TEST(ModelFlops, TensorRanksRepeatLatentProjectionsAndTheRouter) {
  // Low-rank projections are whole on each of t tensor-parallel ranks; without sequence parallelism so is the router.
  const Transformer model = with_layers("deepseek-v3", 8);
  const StepGraph graph = build(model, "dgx-a100:1,gpus=2", {.tp = 2, .etp = 2, .seq = 512});
  const double tokens = 2 * 512;
  const double down = 7168.0 * (1536 + 512 + 64) * 8, router = 7168.0 * 256 * 5;
  expect_equal(flops_of_step(graph), model_flops(model, 512, 2) + Flops{6 * tokens * (down + router)}, "tp 2");
}

TEST(ModelFlops, CapacityPadsExperts) {
  // gpt2-s-moe: one of 16 experts each, capacity 1.25: 512 tokens make 640 rows, 128 of them padding in 4 MoE layers.
  Transformer model = with_layers("gpt2-s-moe", 8);
  model.vocab = 51200;
  const StepGraph graph = build(model, "local:1", {.seq = 512}, 1);
  const double padding = 6.0 * 128 * 4 * (2 * 768.0 * 3072);
  expect_equal(flops_of_step(graph), model_flops(model, 512, 1) + Flops{padding}, "capacity 1.25");
}

}  // namespace
}  // namespace weft
