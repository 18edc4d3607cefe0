#include "model/counts.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

void expect_flops(Flops actual, double expected) {
  EXPECT_NEAR(actual.value / expected, 1.0, 1e-12);
}

TEST(LayerParameterCount, AGptLayerHasTwelveHSquaredPlusThirteenH) {
  for (const char* name : {"gpt2", "gpt2-xl", "megatron-1t"}) {
    const Transformer shape = model_preset(name);
    const std::int64_t h = shape.hidden;
    const LayerParameters count = layer_parameters(shape, 0);
    EXPECT_EQ(count.total(), 12 * h * h + 13 * h) << name;
    EXPECT_EQ(count.attention, 4 * h * h + 4 * h);
    EXPECT_EQ(count.dense_ffn, 8 * h * h + 5 * h);
    EXPECT_EQ(count.norms, 4 * h);
  }
}

TEST(LayerParameterCount, SplitsAnMoeLayerIntoAttentionSharedRouterAndExperts) {
  const Transformer shape = model_preset("deepseek-v3");
  // 7168*1536 + 1536 + 1536*128*192 + 7168*(512+64) + 512 + 512*128*(128+128) + 128*128*7168
  constexpr std::int64_t attention = 187'107'328;
  EXPECT_EQ(layer_parameters(shape, 2).attention, attention);
  EXPECT_EQ(layer_parameters(shape, 2).dense_ffn, 3 * 7168 * 18432);
  EXPECT_EQ(layer_parameters(shape, 2).experts, 0);
  const LayerParameters moe = layer_parameters(shape, 3);
  EXPECT_EQ(moe.attention, attention);
  EXPECT_EQ(moe.dense_ffn, 3 * 7168 * 2048);
  EXPECT_EQ(moe.router, 7168 * 256 + 256);
  EXPECT_EQ(moe.experts, 256LL * 3 * 7168 * 2048);
  EXPECT_EQ(moe.norms, 2 * 7168);
}

TEST(LayerParameterCount, QkvBiasQkNormAndSharedGateAddTheirVectors) {
  Transformer shape = model_preset("llama3-8b");
  const std::int64_t plain = layer_parameters(shape, 0).total();
  shape.qkv_bias = true;
  EXPECT_EQ(layer_parameters(shape, 0).total(), plain + (32 + 2 * 8) * 128);
  shape.qk_norm = true;
  EXPECT_EQ(layer_parameters(shape, 0).total(), plain + (32 + 2 * 8) * 128 + 2 * 128);
  Transformer moe = model_preset("mixtral-8x7b");
  const std::int64_t without_shared = layer_parameters(moe, 0).total();
  moe.experts->shared_ffn = 100;
  moe.experts->shared_gate = true;
  EXPECT_EQ(layer_parameters(moe, 0).total(), without_shared + 3 * 4096 * 100 + 4096);
}

TEST(LayerParameterCount, QueriesWithoutALowRankAreProjectedDirectly) {
  Transformer shape = model_preset("deepseek-v3");
  shape.latent->q_rank = 0;
  EXPECT_EQ(layer_parameters(shape, 0).attention,
            187'107'328 - (7168 * 1536 + 1536 + 1536 * 128 * 192) + 7168 * 128 * 192);
}

TEST(ParameterCount, TheTotalIsTheSumOfItsParts) {
  for (const std::string& name : model_preset_names()) {
    const Transformer shape = model_preset(name);
    std::int64_t sum = embedding_parameters(shape) + head_parameters(shape);
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) sum += layer_parameters(shape, layer).total();
    EXPECT_EQ(total_parameters(shape), sum) << name;
  }
}

TEST(ParameterCount, TiedEmbeddingsAreCountedOnce) {
  const Transformer gpt2 = model_preset("gpt2");
  EXPECT_EQ(embedding_parameters(gpt2), (50257 + 1024) * 768);
  EXPECT_EQ(head_parameters(gpt2), 2 * 768);
  const Transformer llama = model_preset("llama2-7b");
  EXPECT_EQ(embedding_parameters(llama), 32000 * 4096);
  EXPECT_EQ(head_parameters(llama), 32000 * 4096 + 4096);
}

struct GptSizes {
  double batch, s, l, h, vocab;
};

GptSizes sizes_of(const Transformer& shape, double batch) {
  return {batch, static_cast<double>(shape.max_seq), static_cast<double>(shape.layers),
          static_cast<double>(shape.hidden), static_cast<double>(shape.vocab)};
}

TEST(FlopCount, GptMatchesSc21WithAndWithoutFullRecompute) {
  for (const char* name : {"gpt2", "megatron-1.7b", "megatron-22b", "gpt3-175b", "megatron-1t"}) {
    const Transformer shape = model_preset(name);
    const auto [batch, s, l, h, vocab] = sizes_of(shape, 512);
    const double layers = batch * s * l * h * h;
    expect_flops(forward_flops(shape, shape.max_seq, 512), 24 * layers * (1 + s / (6 * h) + vocab / (12 * l * h)));
    expect_flops(model_flops(shape, shape.max_seq, 512), 72 * layers * (1 + s / (6 * h) + vocab / (12 * l * h)));
    expect_flops(hardware_flops(shape, shape.max_seq, 512, Recompute::none),
                 72 * layers * (1 + s / (6 * h) + vocab / (12 * l * h)));
    expect_flops(hardware_flops(shape, shape.max_seq, 512, Recompute::full),
                 96 * layers * (1 + s / (6 * h) + vocab / (16 * l * h)));
    // Scores and their values are 4 B s^2 h l; a causal mask hides half of them.
    expect_flops(masked_flops(shape, shape.max_seq, 512), 2 * batch * s * s * h * l);
  }
}

TEST(FlopCount, SelectiveRecomputeAddsTheTwoAttentionProductsOfEveryLayer) {
  const Transformer shape = model_preset("gpt3-175b");
  const auto [batch, s, l, h, vocab] = sizes_of(shape, 64);
  const double model = 72 * batch * s * l * h * h * (1 + s / (6 * h) + vocab / (12 * l * h));
  expect_flops(hardware_flops(shape, shape.max_seq, 64, Recompute::selective), model + 4 * batch * s * s * h * l);
}

TEST(FlopCount, GroupedQueriesSwigluAndUntiedHeadCountTheirOwnSizes) {
  // llama3-8b: q and o 2*4096^2, k and v 2*4096*1024, three matrices of 4096*14336; logits 4096*128256.
  const double weights = 2.0 * 4096 * 4096 + 2.0 * 4096 * 1024 + 3.0 * 4096 * 14336;
  const double s = 8192;
  expect_flops(forward_flops(model_preset("llama3-8b"), 8192, 3),
               3 * s * (32 * (2 * weights + 4 * s * 4096) + 2.0 * 4096 * 128256));
}

TEST(FlopCount, AHeadDimBesideHiddenOverHeadsCounts) {
  // qwen3-30b-a3b: 32 heads of 128 on hidden 2048; 4 kv heads; router 128, 8 experts of 768.
  const double weights = 2.0 * 2048 * 4096 + 2.0 * 2048 * 512 + 2048.0 * 128 + 8 * 3.0 * 2048 * 768;
  const double s = 4096;
  expect_flops(forward_flops(model_preset("qwen3-30b-a3b"), 4096, 1),
               s * (48 * (2 * weights + 4 * s * 4096) + 2.0 * 2048 * 151936));
}

TEST(FlopCount, LatentAttentionAndSharedExpertsCountTheirOwnSizes) {
  // deepseek-v3: the matrices of latent attention are its parameters less the norms (1536 + 512);
  // scores use heads of 192, values heads of 128.
  const double attention = 187'107'328.0 - 1536 - 512;
  const double s = 4096;
  const double core = 2 * s * 128 * (192 + 128);
  const double dense = 2 * (attention + 3.0 * 7168 * 18432) + core;
  const double moe = 2 * (attention + 7168.0 * 256 + 9 * 3.0 * 7168 * 2048) + core;
  const double layers = 3 * dense + 58 * moe;
  const Transformer shape = model_preset("deepseek-v3");
  expect_flops(forward_flops(shape, 4096, 1), s * (layers + 2.0 * 7168 * 129280));
  expect_flops(hardware_flops(shape, 4096, 1, Recompute::selective),
               s * (3 * (layers + 2.0 * 7168 * 129280) + 61 * core));
  expect_flops(hardware_flops(shape, 4096, 1, Recompute::full), s * (4 * layers + 3 * 2.0 * 7168 * 129280));
}

TEST(FlopCount, RefusesAnEmptyBatch) {
  EXPECT_THROW(forward_flops(model_preset("gpt2"), 0, 1), Error);
  EXPECT_THROW(model_flops(model_preset("gpt2"), 1, 0), Error);
  EXPECT_THROW(hardware_flops(model_preset("gpt2"), -1, 1, Recompute::full), Error);
}

}  // namespace
}  // namespace weft
