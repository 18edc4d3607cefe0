// Bytes that a layer keeps for its backward pass, against Korthikanti et al. 2022 and by hand.
#include <gtest/gtest.h>

#include "graph/test_graphs.hpp"
#include "model/test_memory_counts.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

// Values that forward operations of the layer write and backward (or recomputation) reads. The layer's input was
// written by the layer before; its output, of the same size, stands in for it.
std::int64_t kept_bytes(const StepGraph& graph, std::int32_t layer) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const Operation& op : graph.operations) {
    if (op.phase == Phase::forward || op.phase == Phase::optimizer) continue;
    for (const Read& read : op.reads) needed[read.value.index()] = true;
  }
  std::int64_t sum = 0;
  for (const Operation& op : graph.operations) {
    if (op.phase != Phase::forward || op.layer != layer) continue;
    for (const Write& write : op.writes)
      sum += needed[write.value.index()] ? graph.value(write.value).bytes().value : 0;
  }
  return sum;
}

class KeptActivationsOfTable2 : public ::testing::TestWithParam<ActivationOptions> {};

TEST_P(KeptActivationsOfTable2, AreThoseOfThePaper) {
  const ActivationOptions& o = GetParam();
  const Transformer model = with_layers("gpt3-175b", 4);
  const StepGraph graph = build(model, "dgx-a100:1",
                                {.tp = o.tp,
                                 .micro_batch = o.micro_batch,
                                 .seq = o.seq,
                                 .sequence_parallel = o.sequence_parallel,
                                 .recompute = o.recompute,
                                 .attention = o.attention});
  // A flash kernel keeps one fp32 per row and head, and so does its backward's input under no recompute.
  const bool statistics = o.attention == AttentionKernel::flash && o.recompute == Recompute::none;
  const std::int64_t lse = statistics ? 4 * o.micro_batch * o.seq * 96 / o.tp : 0;
  EXPECT_EQ(kept_bytes(graph, 1), gpt_layer_activation_bytes(model, o).value + lse);
}

std::vector<ActivationOptions> rows_of_table_2() {
  std::vector<ActivationOptions> rows;
  for (const AttentionKernel attention : {AttentionKernel::unfused, AttentionKernel::flash}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      rows.push_back({2048, 2, 1, false, recompute, attention});
      rows.push_back({2048, 2, 8, false, recompute, attention});
      rows.push_back({2048, 2, 8, true, recompute, attention});
    }
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Gpt, KeptActivationsOfTable2, ::testing::ValuesIn(rows_of_table_2()), [](const auto& row) {
  const ActivationOptions& o = row.param;
  return fmt::format("tp{}{}_{}_{}", o.tp, o.sequence_parallel ? "sp" : "", name_of(o.recompute), name_of(o.attention));
});

TEST(KeptActivations, AreSplitByContextParallelism) {
  // Everything is 1/c of the tokens; a row of scores still spans the sequence. Gathered keys are not kept.
  const Transformer model = with_layers("gpt3-175b", 4);
  const StepGraph graph = build(model, "dgx-a100:1", {.cp = 4, .seq = 2048, .attention = AttentionKernel::unfused});
  EXPECT_EQ(kept_bytes(graph, 1), gpt_layer_activation_bytes(model, {.seq = 2048}).value / 4);
}

// Backward needs queries and keys before and after their norms; the values are kept beside both.
TEST(KeptActivations, HaveQueriesKeysAndValuesTwiceWithNormsOnThem) {
  const Transformer plain = with_layers("llama2-70b", 4);  // 64 heads and 8 key heads of 128
  Transformer normed = plain;
  normed.qk_norm = true;
  for (const std::int64_t cp : {1, 2}) {
    const Layout layout{.cp = cp, .seq = 1024};
    EXPECT_EQ(kept_bytes(build(normed, "dgx-a100:1", layout), 1) - kept_bytes(build(plain, "dgx-a100:1", layout), 1),
              1024 / cp * (64 + 2 * 8) * 128 * 2);
  }
}

// The paper's layer without its masks: two of a byte for every element of the stream; with unfused attention also a
// mask of a byte and a dropped-out copy of two for every score.
TEST(KeptActivations, WithoutDropoutHaveNoMasks) {
  const Transformer model = with_layers("gpt3-175b", 4);
  const std::int64_t stream = 2048 * 12288, scores = std::int64_t{96} * 2048 * 2048;
  for (const AttentionKernel attention : {AttentionKernel::unfused, AttentionKernel::flash}) {
    const Layout with{.seq = 2048, .attention = attention};
    Layout without = with;
    without.dropout = false;
    const std::int64_t masks = 2 * stream + (attention == AttentionKernel::unfused ? 3 * scores : 0);
    EXPECT_EQ(kept_bytes(build(model, "dgx-a100:1", without), 1),
              kept_bytes(build(model, "dgx-a100:1", with), 1) - masks);
  }
}

TEST(KeptActivations, OfALlamaLayerByHand) {
  // Per token, two bytes each: input, norm, context, middle, norm: 5 h; queries, keys, values: (64 + 2 * 8) * 128;
  // gate and up: 2 f; their product: f. No dropout. And 4 bytes a head for flash attention.
  const Transformer model = with_layers("llama2-70b", 4);
  const std::int64_t h = 8192, f = 28672, tokens = 512;
  const StepGraph graph = build(model, "dgx-a100:1", {.seq = tokens});
  EXPECT_EQ(kept_bytes(graph, 1), tokens * (2 * (5 * h + 80 * 128 + 3 * f) + 4 * 64));
}

TEST(KeptActivations, OfAnExpertLayerByHand) {
  // mixtral: as above with h = 4096, 32 heads and 8 for keys, but the feed-forward acts on k = 2 copies of each token:
  // dispatched rows h, hidden 2 f, product f, what returns h; and the router's 8 scores. The gate adds a slot and a
  // weight of 4 bytes for each copy, and two numbers for each of the 8 experts.
  const Transformer model = with_layers("mixtral-8x7b", 4);
  const std::int64_t h = 4096, f = 14336, tokens = 512;
  const StepGraph graph = build(model, "dgx-a100:1", {.ep = 8, .seq = tokens});
  const std::int64_t gate = tokens * 2 * 2 * 4 + 2 * 8 * 4;
  EXPECT_EQ(kept_bytes(graph, 1), tokens * (2 * (5 * h + 48 * 128 + 2 * (2 * h + 3 * f) + 8) + 4 * 32) + gate);
}

TEST(KeptActivations, FullRecomputeOfAnyModelKeepsTheInputOnly) {
  for (const char* name : {"llama2-7b", "mixtral-8x7b", "deepseek-v3", "gpt2-s-moe"}) {
    const Transformer model = with_layers(name, 6);
    const StepGraph graph = build(model, "dgx-a100:1", {.seq = 512, .recompute = Recompute::full});
    EXPECT_EQ(kept_bytes(graph, 4), 2 * 512 * model.hidden) << name;
  }
}

// Megatron's block method: of every chunk the first layers keep their input alone, the others what they keep anyway.
TEST(KeptActivations, OfLayersThatAreRecomputedInBlocks) {
  const Transformer model = with_layers("llama2-70b", 8);
  const auto kept = [&](std::int32_t layer, Layout layout) {
    layout.seq = 512;
    layout.pp = 2;
    return kept_bytes(build(model, "dgx-a100:1", layout), layer);
  };
  for (std::int32_t layer = 0; layer < 8; ++layer) {
    const std::int64_t in_chunk = layer % 4, none = kept(layer, {}), input = std::int64_t{2} * 512 * model.hidden;
    ASSERT_GT(none, input);
    EXPECT_EQ(kept(layer, {.recompute = Recompute::full, .recompute_layers = {2}}), in_chunk < 2 ? input : none)
        << layer;
    const std::int64_t wished = layer < 4 ? 3 : 0;
    EXPECT_EQ(kept(layer, {.recompute = Recompute::full, .recompute_layers = {3, 0}}), in_chunk < wished ? input : none)
        << layer;
    // All of them; what the last of the first stage writes goes to the next.
    EXPECT_EQ(kept(layer, {.recompute = Recompute::full, .recompute_layers = {7}}), layer != 3 ? input : 0) << layer;
  }
}

}  // namespace
}  // namespace weft
