// Parameters and training state of the graph against the closed forms of model/counts.
#include <gtest/gtest.h>

#include "graph/test_graphs.hpp"
#include "model/test_memory_counts.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

// What lives from one iteration to the next: parameters and optimizer state are read at distance 1, gradients are
// accumulated.
StateBytes state_of(const StepGraph& graph, ClassId id) {
  std::vector<bool> persists(graph.values.size(), false);
  for (const Operation& op : graph.operations) {
    for (const Read& read : op.reads) persists[read.value.index()] = persists[read.value.index()] || read.distance == 1;
  }
  StateBytes state;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.rank_class != id) continue;
    if (value.kind == ValueKind::parameter && persists[v]) state.weights += value.bytes();
    if (value.kind == ValueKind::optimizer_state) state.optimizer += value.bytes();
    if (value.kind == ValueKind::gradient && value.accumulated) state.gradients += value.bytes();
  }
  return state;
}

// Elements of all weights over all ranks of the job, 2 bytes each.
std::int64_t weights_of_all_ranks(const StepGraph& graph) {
  std::int64_t sum = 0;
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    sum += graph.classes[c].ranks * state_of(graph, make_id<ClassId>(c)).weights.value / 2;
  }
  return sum;
}

const char* const kModels[] = {"megatron-1.7b", "llama2-7b",     "llama2-70b",
                               "mixtral-8x7b",  "qwen3-30b-a3b", "deepseek-v3"};

TEST(Parameters, OneRankHoldsTheWholeModel) {
  for (const char* name : kModels) {
    const Transformer model = model_preset(name);
    EXPECT_EQ(weights_of_all_ranks(build(model, "local:1", {})), total_parameters(model)) << name;
  }
}

// DeepSeek's table of DualPipe: twice the parameters. Each copy has its embedding and its head on different stages, of
// which one has the embedding of one copy and the head of the other, so tied ones are not copied once more.
TEST(Parameters, TwoDirectionsHoldTwoCopies) {
  for (const char* name : kModels) {
    const Transformer model = with_layers(name, 8);
    const StepGraph graph = build(model, "local:4", {.pp = 4, .vpp = 2, .schedule = PipelineSchedule::dualpipe}, 8);
    EXPECT_EQ(weights_of_all_ranks(graph), 2 * total_parameters(model)) << name;
  }
}

TEST(Parameters, PipelineStagesShareThemAndCopyTiedEmbeddings) {
  for (const char* name : kModels) {
    const Transformer model = with_layers(name, 8);
    const std::int64_t copy = model.tied_embeddings ? model.vocab * model.hidden : 0;
    const StepGraph plain = build(model, "local:4", {.pp = 4});
    EXPECT_EQ(weights_of_all_ranks(plain), total_parameters(model) + copy) << name;
    const StepGraph interleaved =
        build(model, "local:4", {.pp = 4, .vpp = 2, .schedule = PipelineSchedule::interleaved}, 4);
    EXPECT_EQ(weights_of_all_ranks(interleaved), total_parameters(model) + copy) << name;
  }
}

TEST(Parameters, VocabularyIsPaddedTo128RowsPerTensorRank) {
  // GPT-2 has 50257 rows: 393 * 128 = 50304 on one rank, 2 * 197 * 128 = 50432 on two.
  const Transformer gpt2 = model_preset("gpt2");
  EXPECT_EQ(weights_of_all_ranks(build(gpt2, "local:1", {})), total_parameters(gpt2) + 47 * 768);
  EXPECT_EQ(local_vocab(gpt2, {.tp = 2}), 197 * 128);
}

TEST(Parameters, TensorRanksSplitMatricesAndRepeatNorms) {
  // Llama has no biases: only the norms (two a layer and the last one, h each) are on every rank.
  Transformer model = with_layers("llama2-7b", 4);
  model.vocab = 32768;
  for (const std::int64_t tp : {2, 4, 8}) {
    const StepGraph graph = build(model, fmt::format("dgx-a100:1,gpus={}", tp), {.tp = tp});
    EXPECT_EQ(weights_of_all_ranks(graph), total_parameters(model) + (tp - 1) * 9 * model.hidden) << tp;
  }
}

TEST(Parameters, ExpertRanksSplitExpertsAndRepeatTheRest) {
  for (const char* name : {"mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"}) {
    const Transformer model = with_layers(name, 8);
    const std::int64_t experts = model.moe_layers() * layer_parameters(model, 7).experts;
    const std::int64_t rest = total_parameters(model) - experts;
    EXPECT_EQ(weights_of_all_ranks(build(model, "dgx-a100:1", {.ep = 8})), experts + 8 * rest) << name;
    // Two replicas of four shards, be they experts or slices of them.
    EXPECT_EQ(weights_of_all_ranks(build(model, "dgx-a100:1", {.ep = 4})), 2 * experts + 8 * rest) << name;
    EXPECT_EQ(weights_of_all_ranks(build(model, "dgx-a100:1", {.ep = 2, .etp = 2})), 2 * experts + 8 * rest) << name;
  }
}

TEST(StateBytes, AreMegatrons) {
  // 18 bytes a parameter; 6 + 12/d with the distributed optimizer. Every tensor of these models divides by 8.
  for (const char* name : {"megatron-1.7b", "llama2-7b", "qwen3-30b-a3b"}) {
    const Transformer model = with_layers(name, 4);
    const std::int64_t parameters = total_parameters(model);
    EXPECT_EQ(state_of(build(model, "dgx-a100:1", {}), ClassId{0}), megatron_state_bytes(parameters, false, 8)) << name;
    EXPECT_EQ(state_of(build(model, "dgx-a100:1", {.zero = 1}), ClassId{0}), megatron_state_bytes(parameters, true, 8))
        << name;
  }
}

TEST(StateBytes, FollowTheZeroPaperAtEveryStage) {
  const Transformer model = with_layers("llama2-7b", 4);
  for (int zero = 0; zero <= 3; ++zero) {
    const StepGraph graph = build(model, "dgx-a100:1", {.zero = zero, .grad_dtype = ElementType::bf16});
    EXPECT_EQ(state_of(graph, ClassId{0}), zero_state_bytes(total_parameters(model), zero, 8)) << zero;
  }
}

TEST(StateBytes, ContextParallelRanksAreShardsToo) {
  const Transformer model = with_layers("llama2-7b", 4);
  EXPECT_EQ(state_of(build(model, "dgx-a100:1", {.cp = 4, .zero = 1}), ClassId{0}),
            megatron_state_bytes(total_parameters(model), true, 8));
}

TEST(StateBytes, ExpertsAreShardedOverTheirOwnReplicas) {
  // ep 4 of 8 ranks: a quarter of the experts, their optimizer state over 2 replicas; the rest over all 8.
  const Transformer model = with_layers("mixtral-8x7b", 4);
  const std::int64_t experts = 4 * layer_parameters(model, 0).experts, rest = total_parameters(model) - experts;
  const StateBytes state = state_of(build(model, "dgx-a100:1", {.ep = 4, .zero = 1}), ClassId{0});
  EXPECT_EQ(state.weights.value, 2 * (experts / 4 + rest));
  EXPECT_EQ(state.gradients.value, 4 * (experts / 4 + rest));
  EXPECT_EQ(state.optimizer.value, 12 * (experts / 4 / 2 + rest / 8));
}

TEST(StateBytes, FullPrecisionKeepsNoMasterCopy) {
  // 4 of weights, 4 of gradients, 8 of moments.
  const Transformer model = with_layers("llama2-7b", 4);
  const StepGraph graph = build(model, "local:1", {.precision = ElementType::fp32});
  EXPECT_EQ(state_of(graph, ClassId{0}).total().value, 16 * total_parameters(model));
}

TEST(StateBytes, AShardHoldsWholeElementsOfEveryTensor) {
  const Transformer model = with_layers("llama2-7b", 2);
  const StepGraph whole = build(model, "local:1", {});
  std::int64_t elements = 0;
  for (const Value& value : whole.values) {
    if (value.kind == ValueKind::optimizer_state) elements += (value.elements() + 2) / 3;
  }
  for (int zero = 1; zero <= 3; ++zero) {
    EXPECT_EQ(state_of(build(model, "local:3", {.zero = zero}), ClassId{0}).optimizer.value, 12 * elements) << zero;
  }
}

}  // namespace
}  // namespace weft
