#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "model/counts.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

struct ExactCount {
  const char* name;
  std::int64_t parameters;
};

// The number of elements in the released checkpoints. Each follows from the architecture by hand, e.g.
// llama2-70b: q and o 2*8192^2 = 134,217,728; k and v 2*8192*1024 = 16,777,216; norms 2*8192;
//   ffn 3*8192*28672 = 704,643,072; 80 layers of 855,654,400, embedding and head 2*32000*8192, final norm
//   8192.
// deepseek-v3: attention 7168*1536 + 1536 + 1536*128*192 + 7168*576 + 512 + 512*128*256 + 128*128*7168, that
// is
//   187,107,328; dense ffn 3*7168*18432 = 396,361,728; 256 + 1 experts of 3*7168*2048 = 44,040,192; router
//   7168*256 + 256; norms 2*7168; 3 dense layers of 583,483,392 and 58 MoE layers of 11,507,286,272;
//   embedding and head 2*129280*7168, final norm 7168.
// mixtral-8x22b: attention 88,080,384, 8 experts of 3*6144*16384, router 49,152, norms 12,288: 56 layers of
//   2,504,060,928, embedding and head 2*32000*6144, final norm 6144.
constexpr ExactCount kExactCounts[] = {
    {"gpt2", 124'439'808},
    {"gpt2-medium", 354'823'168},
    {"gpt2-large", 774'030'080},
    {"gpt2-xl", 1'557'611'200},
    {"llama2-7b", 6'738'415'616},
    {"llama2-13b", 13'015'864'320},
    {"llama2-70b", 68'976'648'192},
    {"llama3-8b", 8'030'261'248},
    {"llama3-70b", 70'553'706'496},
    {"llama3-405b", 405'853'388'800},
    {"mixtral-8x7b", 46'702'792'704},
    {"mixtral-8x22b", 140'620'634'112},
    {"qwen3-30b-a3b", 30'532'122'624},
    {"qwen3-235b-a22b", 235'093'634'560},
    {"deepseek-v3", 671'026'419'200},
};

TEST(ModelPresets, ParameterCountsAreThoseOfTheReleasedCheckpoints) {
  for (const ExactCount& expected : kExactCounts) {
    EXPECT_EQ(total_parameters(model_preset(expected.name)), expected.parameters) << expected.name;
  }
}

TEST(ModelPresets, ParameterCountsOfTheSc21ModelsRoundToTheNamesInTheirTable) {
  struct Row {
    const char* name;
    double billions;
  };
  for (const Row& row : {Row{"megatron-1.7b", 1.7}, Row{"megatron-3.6b", 3.6}, Row{"megatron-7.5b", 7.5},
                         Row{"megatron-18.4b", 18.4}, Row{"megatron-39.1b", 39.1}, Row{"megatron-76.1b", 76.1},
                         Row{"megatron-145.6b", 145.6}, Row{"megatron-310.1b", 310.1}, Row{"megatron-529.6b", 529.6},
                         Row{"megatron-1t", 1008.0}, Row{"gpt3-175b", 174.6}, Row{"mt-nlg-530b", 529.6}}) {
    const Transformer shape = model_preset(row.name);
    const auto parameters = static_cast<double>(total_parameters(shape));
    EXPECT_NEAR(parameters / 1e9, row.billions, 0.05) << row.name;
    // SC21, equation 2, which leaves out the final norm: 12 l h^2 (1 + 13/12h + (V + s)/12lh).
    const auto l = static_cast<double>(shape.layers);
    const auto h = static_cast<double>(shape.hidden);
    const double published = 12 * l * h * h * (1 + 13 / (12 * h) + (51200.0 + 2048.0) / (12 * l * h));
    EXPECT_NEAR(parameters, published + 2 * h, 1e-12 * published) << row.name;
  }
}

TEST(ModelPresets, ActiveParametersAreTheSizesInTheModelsNames) {
  // Mixtral paper: 13B active of 47B; Qwen3: 3.3B and 22B; DeepSeek-V3 report: 37B.
  EXPECT_NEAR(static_cast<double>(active_parameters(model_preset("mixtral-8x7b"))), 12.9e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(model_preset("qwen3-30b-a3b"))), 3.3e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(model_preset("qwen3-235b-a22b"))), 22e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(model_preset("deepseek-v3"))), 37e9, 0.6e9);
  EXPECT_EQ(active_parameters(model_preset("llama3-8b")), total_parameters(model_preset("llama3-8b")));
}

TEST(ModelPresets, LancetModelsAlternateDenseAndMoeLayers) {
  const Transformer shape = model_preset("gpt2-s-moe");
  EXPECT_FALSE(shape.is_moe_layer(0));
  EXPECT_TRUE(shape.is_moe_layer(1));
  EXPECT_TRUE(shape.is_moe_layer(11));
  EXPECT_EQ(shape.moe_layers(), 6);
  // GPT-2 plus, in each of 6 layers, 15 more feed-forwards of 8h^2 + 5h and a router of 16h.
  constexpr std::int64_t h = 768;
  EXPECT_EQ(total_parameters(shape), 124'439'808 + 6 * (15 * (8 * h * h + 5 * h) + 16 * h));
  EXPECT_EQ(model_preset("gpt2-l-moe").moe_layers(), 12);
}

TEST(ModelPresets, EveryNameIsSortedUniqueAndValid) {
  const std::vector<std::string> names = model_preset_names();
  // 4 GPT-2, 13 Megatron-style, 2 Lancet, 6 Llama, 2 Mixtral, 2 Qwen3, 1 DeepSeek.
  EXPECT_EQ(names.size(), 30U);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  for (const std::string& name : names) {
    EXPECT_EQ(model_preset(name).name, name);
    EXPECT_NO_THROW(validate(model_preset(name))) << name;
  }
}

TEST(ModelPresets, AMistypedNameGetsTheNearestSuggested) {
  try {
    model_preset("lama2-70b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "model 'lama2-70b' is not a preset; did you mean 'llama2-70b'?");
  }
}

}  // namespace
}  // namespace weft
