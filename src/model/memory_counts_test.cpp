#include <gtest/gtest.h>

#include "base/error.hpp"
#include "model/presets.hpp"
#include "model/test_memory_counts.hpp"

namespace weft {
namespace {

constexpr std::int64_t kPsi = 7'500'000'000;  // the ZeRO paper's example

double gigabytes(Bytes b) {
  return static_cast<double>(b.value) / 1e9;
}

// Korthikanti et al. 2022, Table 2, in the paper's letters, for GPT-3: a = 96 heads, h = 12288, s = 2048.
class ActivationTable : public ::testing::Test {
 protected:
  const Transformer shape_ = model_preset("gpt3-175b");
  static constexpr std::int64_t s = 2048, b = 2, h = 12288, a = 96, t = 8;
  static constexpr std::int64_t sbh = s * b * h;

  Bytes bytes(std::int64_t tp, bool sequence_parallel, Recompute recompute,
              AttentionKernel attention = AttentionKernel::unfused) const {
    return gpt_layer_activation_bytes(shape_, {s, b, tp, sequence_parallel, recompute, attention});
  }
};

TEST_F(ActivationTable, RowsWithoutRecompute) {
  EXPECT_EQ(bytes(1, false, Recompute::none).value, sbh * 34 + 5 * a * s * s * b);
  EXPECT_EQ(bytes(t, false, Recompute::none).value, sbh * 10 + sbh * 24 / t + 5 * a * s * s * b / t);
  EXPECT_EQ(bytes(t, true, Recompute::none).value, sbh * 34 / t + 5 * a * s * s * b / t);
  // 5as/h is 80 for GPT-3 (the paper's section 5), so attention is 70 % of the layer's 114 sbh.
  EXPECT_EQ(bytes(1, false, Recompute::none).value, 114 * sbh);
}

TEST_F(ActivationTable, SelectiveRecomputeDropsTheAttentionTerm) {
  EXPECT_EQ(bytes(1, false, Recompute::selective).value, sbh * 34);
  EXPECT_EQ(bytes(t, false, Recompute::selective).value, sbh * 10 + sbh * 24 / t);
  EXPECT_EQ(bytes(t, true, Recompute::selective).value, sbh * 34 / t);
}

TEST_F(ActivationTable, FullRecomputeKeepsTheLayersInput) {
  EXPECT_EQ(bytes(1, false, Recompute::full).value, sbh * 2);
  EXPECT_EQ(bytes(t, false, Recompute::full).value, sbh * 2);
  EXPECT_EQ(bytes(t, true, Recompute::full).value, sbh * 2 / t);
}

TEST_F(ActivationTable, FlashAttentionKeepsNoScoreMatrix) {
  for (const bool sequence_parallel : {false, true}) {
    EXPECT_EQ(bytes(t, sequence_parallel, Recompute::none, AttentionKernel::flash),
              bytes(t, sequence_parallel, Recompute::selective));
  }
}

TEST_F(ActivationTable, RefusesWhatTheFormulaDoesNotCover) {
  const ActivationOptions good{.seq = 2048};
  for (const char* name : {"llama2-7b", "mixtral-8x7b", "deepseek-v3", "gpt2-s-moe"}) {
    EXPECT_THROW(gpt_layer_activation_bytes(model_preset(name), good), Error) << name;
  }
  EXPECT_THROW(bytes(0, false, Recompute::none), Error);
  EXPECT_THROW(bytes(5, false, Recompute::none), Error);
  EXPECT_THROW(gpt_layer_activation_bytes(shape_, {.seq = 0}), Error);
  EXPECT_THROW(gpt_layer_activation_bytes(shape_, {.seq = 2048, .micro_batch = 0}), Error);
  EXPECT_THROW(gpt_layer_activation_bytes(shape_, {.seq = 2047, .tp = 2, .sequence_parallel = true}), Error);
  EXPECT_THROW(gpt_layer_activation_bytes(shape_, {.seq = std::int64_t{1} << 62}), Error);
}

TEST(InFlightMicroBatches, FallFromTheFirstStageToTheLastAndNeverExceedTheBatch) {
  EXPECT_EQ(in_flight_micro_batches(4, 0, 8), 4);
  EXPECT_EQ(in_flight_micro_batches(4, 3, 8), 1);
  EXPECT_EQ(in_flight_micro_batches(4, 0, 2), 2);
  EXPECT_EQ(in_flight_micro_batches(1, 0, 9), 1);
  EXPECT_THROW(in_flight_micro_batches(4, 4, 8), Error);
  EXPECT_THROW(in_flight_micro_batches(4, -1, 8), Error);
  EXPECT_THROW(in_flight_micro_batches(0, 0, 8), Error);
  EXPECT_THROW(in_flight_micro_batches(4, 0, 0), Error);
}

TEST(ZeroState, MatchesFigureOneOfTheZeroPaper) {
  EXPECT_NEAR(gigabytes(zero_state_bytes(kPsi, 0, 64).total()), 120, 1e-9);
  EXPECT_NEAR(gigabytes(zero_state_bytes(kPsi, 1, 64).total()), 31.4, 0.05);
  EXPECT_NEAR(gigabytes(zero_state_bytes(kPsi, 2, 64).total()), 16.6, 0.05);
  EXPECT_NEAR(gigabytes(zero_state_bytes(kPsi, 3, 64).total()), 1.9, 0.05);
}

TEST(ZeroState, ShardsOptimizerThenGradientsThenWeights) {
  const StateBytes one = zero_state_bytes(640, 1, 64);
  EXPECT_EQ(one.weights.value, 2 * 640);
  EXPECT_EQ(one.gradients.value, 2 * 640);
  EXPECT_EQ(one.optimizer.value, 12 * 10);
  EXPECT_EQ(zero_state_bytes(640, 2, 64).gradients.value, 2 * 10);
  EXPECT_EQ(zero_state_bytes(640, 2, 64).weights.value, 2 * 640);
  EXPECT_EQ(zero_state_bytes(640, 3, 64).weights.value, 2 * 10);
}

TEST(ZeroState, AShardHoldsWholeParameters) {
  EXPECT_EQ(zero_state_bytes(10, 1, 4).optimizer.value, 12 * 3);
  EXPECT_EQ(zero_state_bytes(1, 3, 64).total().value, 16);
  EXPECT_EQ(zero_state_bytes(0, 3, 64).total().value, 0);
}

TEST(ZeroState, RefusesBadStagesGroupsAndSizes) {
  EXPECT_THROW(zero_state_bytes(kPsi, 4, 64), Error);
  EXPECT_THROW(zero_state_bytes(kPsi, -1, 64), Error);
  EXPECT_THROW(zero_state_bytes(kPsi, 0, 0), Error);
  EXPECT_THROW(zero_state_bytes(-1, 0, 1), Error);
  EXPECT_THROW(zero_state_bytes(std::int64_t{1} << 62, 0, 1), Error);
}

TEST(MegatronState, TakesEighteenBytesOrSixPlusTwelveOverD) {
  EXPECT_EQ(megatron_state_bytes(kPsi, false, 64).total().value, 18 * kPsi);
  // 6 + 12/64 = 6.1875 bytes a parameter.
  EXPECT_EQ(megatron_state_bytes(6400, true, 64).total().value, 6 * 6400 + 12 * 100);
  EXPECT_EQ(megatron_state_bytes(kPsi, true, 1), megatron_state_bytes(kPsi, false, 1));
}

}  // namespace
}  // namespace weft
