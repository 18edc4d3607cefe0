#include "model/transformer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

struct BadField {
  const char* field;
  const char* preset;
  std::function<void(Transformer&)> break_it;
};

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

const std::vector<BadField>& bad_fields() {
  static const std::vector<BadField> fields = {
      {"layers", "gpt2", [](Transformer& t) { t.layers = 0; }},
      {"layers", "gpt2", [](Transformer& t) { t.layers = kHuge; }},
      {"hidden", "gpt2", [](Transformer& t) { t.hidden = -768; }},
      {"heads", "gpt2", [](Transformer& t) { t.heads = 0; }},
      {"kv_heads", "llama3-8b", [](Transformer& t) { t.kv_heads = 0; }},
      {"kv_heads", "llama3-8b", [](Transformer& t) { t.kv_heads = 64; }},
      {"kv_heads", "llama3-8b", [](Transformer& t) { t.kv_heads = 7; }},
      {"head_dim", "gpt2", [](Transformer& t) { t.head_dim = 0; }},
      {"ffn", "gpt2", [](Transformer& t) { t.ffn = 0; }},
      {"vocab", "gpt2", [](Transformer& t) { t.vocab = 0; }},
      {"max_seq", "gpt2", [](Transformer& t) { t.max_seq = 0; }},
      {"latent.q_rank", "deepseek-v3", [](Transformer& t) { t.latent->q_rank = -1; }},
      {"latent.kv_rank", "deepseek-v3", [](Transformer& t) { t.latent->kv_rank = 0; }},
      {"latent.nope_head_dim", "deepseek-v3", [](Transformer& t) { t.latent->nope_head_dim = 0; }},
      {"latent.rope_head_dim", "deepseek-v3", [](Transformer& t) { t.latent->rope_head_dim = 0; }},
      {"latent.value_head_dim", "deepseek-v3", [](Transformer& t) { t.latent->value_head_dim = 0; }},
      {"kv_heads", "deepseek-v3", [](Transformer& t) { t.kv_heads = 64; }},
      {"head_dim", "deepseek-v3", [](Transformer& t) { t.head_dim = 128; }},
      {"linear_bias", "deepseek-v3", [](Transformer& t) { t.linear_bias = true; }},
      {"qkv_bias", "deepseek-v3", [](Transformer& t) { t.qkv_bias = true; }},
      {"qk_norm", "deepseek-v3", [](Transformer& t) { t.qk_norm = true; }},
      {"experts.count", "mixtral-8x7b", [](Transformer& t) { t.experts->count = 0; }},
      {"experts.top_k", "mixtral-8x7b", [](Transformer& t) { t.experts->top_k = 0; }},
      {"experts.top_k", "mixtral-8x7b", [](Transformer& t) { t.experts->top_k = 9; }},
      {"experts.ffn", "mixtral-8x7b", [](Transformer& t) { t.experts->ffn = 0; }},
      {"experts.shared_ffn", "mixtral-8x7b", [](Transformer& t) { t.experts->shared_ffn = -1; }},
      {"experts.shared_ffn", "mixtral-8x7b", [](Transformer& t) { t.experts->shared_gate = true; }},
      {"experts.capacity_factor", "mixtral-8x7b", [](Transformer& t) { t.experts->capacity_factor = NAN; }},
      {"experts.capacity_factor", "mixtral-8x7b", [](Transformer& t) { t.experts->capacity_factor = -1; }},
      {"experts.aux_loss_coeff", "mixtral-8x7b", [](Transformer& t) { t.experts->aux_loss_coeff = -1; }},
      {"experts.aux_loss_coeff", "mixtral-8x7b", [](Transformer& t) { t.experts->aux_loss_coeff = INFINITY; }},
      {"experts.dense_first", "mixtral-8x7b", [](Transformer& t) { t.experts->dense_first = -1; }},
      {"experts.dense_first", "mixtral-8x7b", [](Transformer& t) { t.experts->dense_first = 32; }},
      {"experts.every", "mixtral-8x7b", [](Transformer& t) { t.experts->every = 0; }},
      {"experts.every", "mixtral-8x7b", [](Transformer& t) { t.experts->every = 33; }},
  };
  return fields;
}

TEST(ValidateTransformer, NamesTheModelAndTheBadField) {
  for (const BadField& bad : bad_fields()) {
    Transformer shape = model_preset(bad.preset);
    bad.break_it(shape);
    try {
      validate(shape);
      ADD_FAILURE() << bad.preset << " " << bad.field;
    } catch (const Error& error) {
      const std::string start = "model '" + std::string(bad.preset) + "': " + bad.field + ": value ";
      EXPECT_EQ(std::string(error.what()).rfind(start, 0), 0U) << error.what();
    }
  }
}

TEST(ValidateTransformer, SaysTheValueAndWhatIsAllowed) {
  Transformer shape = model_preset("mixtral-8x7b");
  shape.experts->top_k = 9;
  try {
    validate(shape);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "model 'mixtral-8x7b': experts.top_k: value 9 is not in 1..8");
  }
}

TEST(ValidateTransformer, RefusesSizesWhoseProductOverflows) {
  for (const auto field :
       {&Transformer::hidden, &Transformer::ffn, &Transformer::vocab, &Transformer::max_seq, &Transformer::head_dim}) {
    Transformer shape = model_preset("gpt2");
    shape.*field = kHuge;
    EXPECT_THROW(validate(shape), Error);
    shape.*field = kHuge / 700;
    EXPECT_THROW(validate(shape), Error);
  }
  Transformer experts = model_preset("deepseek-v3");
  experts.experts->count = kHuge;
  EXPECT_THROW(validate(experts), Error);
  Transformer latent = model_preset("deepseek-v3");
  latent.latent->kv_rank = kHuge;
  EXPECT_THROW(validate(latent), Error);
  Transformer heads = model_preset("gpt2");
  heads.heads = heads.kv_heads = kHuge;
  EXPECT_THROW(validate(heads), Error);
}

TEST(MoeLayers, AreTheLastOfEachRunBehindTheLeadingDenseLayers) {
  Transformer shape = model_preset("mixtral-8x7b");
  shape.layers = 9;
  shape.experts->dense_first = 2;
  shape.experts->every = 3;
  // Layers 2..8 in runs of three: 2 3 [4], 5 6 [7], and 8 begins a run that never ends.
  std::vector<std::int64_t> moe;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    if (shape.is_moe_layer(layer)) moe.push_back(layer);
  }
  EXPECT_EQ(moe, (std::vector<std::int64_t>{4, 7}));
  EXPECT_EQ(shape.moe_layers(), 2);
}

}  // namespace
}  // namespace weft
