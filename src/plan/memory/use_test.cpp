#include "plan/memory/use.hpp"

#include <gtest/gtest.h>

#include "planner/test_plans.hpp"

namespace weft {
namespace {

std::int64_t sum(const std::vector<MemoryTerm>& terms) {
  std::int64_t bytes = 0;
  for (const MemoryTerm& term : terms) bytes += term.bytes.value;
  return bytes;
}

TEST(MemoryUse, TermsAddUpToWhatThePlacementNeeds) {
  for (const auto& [name, layout] : test::layouts()) {
    const Transformer model = layout.ep > 1 ? test::small_moe() : test::small_gpt();
    const Plan plan = test::serial(model, "dgx-a100:2", layout, 4);
    const std::vector<MemoryUse> use = memory_use(plan);
    for (std::size_t c = 0; c < use.size(); ++c) {
      EXPECT_EQ(sum(use[c].terms), plan.classes[c].memory.value) << name;
      EXPECT_LE(use[c].peak.live.value, plan.classes[c].memory.value) << name;
      EXPECT_GT(use[c].peak.live.value, 0) << name;
    }
  }
}

// 1F1B: stage s of p has p - s micro-batches in flight when its first backward runs, if there are as many; GPipe has
// all of them. The last stage is fullest where its loss has logits and probabilities, one operation before backward
// begins with probabilities and the logits' gradient, which is as large as they are: of equal moments the first counts.
TEST(MemoryUse, ThePeakIsTheFirstBackwardWithTheMicroBatchesThatTheScheduleHoldsBack) {
  for (const std::int64_t micro_batches : {2, 4, 8}) {
    const Plan plan = test::serial(test::small_gpt(8), "local:4", {.pp = 4}, micro_batches);
    const std::vector<MemoryUse> use = memory_use(plan);
    ASSERT_EQ(use.size(), 4u);
    for (std::int64_t stage = 0; stage < 4; ++stage) {
      const MemoryPeak& peak = use[stage].peak;
      EXPECT_EQ(peak.in_flight, std::min(4 - stage, micro_batches)) << "stage " << stage;
      EXPECT_EQ(peak.block, stage < 3 ? "backward 0" : "forward 0");
      EXPECT_EQ(peak.micro_batch, MicroBatch{0});
    }
  }
  const Plan gpipe = test::serial(test::small_gpt(8), "local:4", {.pp = 4, .schedule = PipelineSchedule::gpipe}, 8);
  for (const MemoryUse& use : memory_use(gpipe)) EXPECT_EQ(use.peak.in_flight, 8);
}

// Interleaved (Narayanan et al. 2021): rank 0 holds (p - 1) * 2 + (v - 1) * p + 1 model chunks' activations.
TEST(MemoryUse, InterleavingHoldsMoreForwardsBack) {
  const Plan plan =
      test::serial(test::small_gpt(8), "local:4", {.pp = 4, .vpp = 2, .schedule = PipelineSchedule::interleaved}, 8);
  EXPECT_EQ(memory_use(plan).front().peak.in_flight, 3 * 2 + 4 + 1);
}

// Korthikanti et al. 2022, table 2: s b h (34 + 5 a s / h) bytes a layer without parallelism or recomputation, with
// dropout and 16 bits: what one micro-batch keeps for backward, up to the ends of the model.
TEST(MemoryUse, ActivationsOfALayerAreThoseOfThePaper) {
  Transformer model = test::small_gpt(8);
  model.hidden = 256;
  model.ffn = 1024;
  model.heads = model.kv_heads = 4;
  model.head_dim = 64;
  const auto activations = [&](std::int64_t layers) {
    model.layers = layers;
    const Plan plan = test::serial(model, "dgx-a100:1,gpus=1", {.seq = 64, .attention = AttentionKernel::unfused}, 1);
    return static_cast<double>(memory_use(plan).front().peak.live.value);
  };
  const double layer_state = 18.0 * (12.0 * 256 * 256 + 13.0 * 256);
  const double paper = 64.0 * 256 * (34 + 5.0 * 4 * 64 / 256);
  EXPECT_NEAR((activations(16) - activations(8)) / 8 - layer_state, paper, 0.02 * paper);
}

}  // namespace
}  // namespace weft
