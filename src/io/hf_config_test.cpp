#include "io/hf_config.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "model/counts.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

using nlohmann::json;

json gpt2_config() {
  return json::parse(
      R"({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257,
                         "n_positions": 1024, "n_ctx": 1024, "activation_function": "gelu_new"})");
}

// Llama-2 70B.
json llama_config() {
  return json::parse(R"({"model_type": "llama", "_name_or_path": "llama2-70b", "hidden_act": "silu",
      "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8,
      "intermediate_size": 28672, "vocab_size": 32000, "max_position_embeddings": 4096,
      "tie_word_embeddings": false, "rope_theta": 10000.0, "torch_dtype": "float16"})");
}

// Mistral 7B v0.1.
json mistral_config() {
  return json::parse(R"({"model_type": "mistral", "hidden_act": "silu", "num_hidden_layers": 32,
      "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
      "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": 4096,
      "tie_word_embeddings": false})");
}

json mixtral_config() {
  json config = mistral_config();
  config.update(json::parse(R"({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2,
                                "sliding_window": null, "_name_or_path": "mixtral-8x7b"})"));
  return config;
}

// Qwen2 7B.
json qwen2_config() {
  return json::parse(R"({"model_type": "qwen2", "hidden_act": "silu", "num_hidden_layers": 28,
      "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
      "vocab_size": 152064, "max_position_embeddings": 131072, "tie_word_embeddings": false})");
}

// Qwen1.5-MoE-A2.7B.
json qwen2_moe_config() {
  return json::parse(R"({"model_type": "qwen2_moe", "hidden_act": "silu", "num_hidden_layers": 24,
      "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632,
      "vocab_size": 151936, "max_position_embeddings": 8192, "tie_word_embeddings": false,
      "decoder_sparse_step": 1, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
      "shared_expert_intermediate_size": 5632})");
}

// DeepSeek-V2-Lite, which projects its queries directly.
json deepseek_v2_config() {
  return json::parse(R"({"model_type": "deepseek_v2", "hidden_act": "silu", "num_hidden_layers": 27,
      "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 10944,
      "vocab_size": 102400, "max_position_embeddings": 163840, "tie_word_embeddings": false,
      "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
      "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "moe_layer_freq": 1,
      "topk_method": "greedy"})");
}

std::vector<json> all_configs() {
  return {gpt2_config(),  llama_config(),     mistral_config(),    mixtral_config(),
          qwen2_config(), qwen2_moe_config(), deepseek_v2_config()};
}

Transformer read(const json& config) {
  return read_hf_config(config.dump(), "config.json");
}

std::string message_of(const std::string& text) {
  try {
    read_hf_config(text, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

std::string message_with(json config, const std::string& key, const json& value) {
  config[key] = value;
  return message_of(config.dump());
}

std::string message_without(json config, const std::string& key) {
  config.erase(key);
  return message_of(config.dump());
}

json with(json config, const std::string& key, const json& value) {
  config[key] = value;
  return config;
}

json without(json config, const std::string& key) {
  config.erase(key);
  return config;
}

std::vector<std::int64_t> moe_layers(const Transformer& shape) {
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    if (shape.is_moe_layer(layer)) layers.push_back(layer);
  }
  return layers;
}

// A file of the sample collection, or "" where the collection is not here.
std::string sample(const std::string& name) {
  std::ifstream file(std::filesystem::path(WEFT_SOURCE_DIR "/../shared/data/hf_configs") / name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Transformer named(Transformer shape, const std::string& name) {
  shape.name = name;
  return shape;
}

TEST(HfConfig, AgreesWithThePresets) {
  EXPECT_EQ(named(read(gpt2_config()), "gpt2"), model_preset("gpt2"));
  EXPECT_EQ(read(llama_config()), model_preset("llama2-70b"));
  EXPECT_EQ(read(mixtral_config()), model_preset("mixtral-8x7b"));
}

TEST(HfConfig, CountsAreThoseOfTheReleasedCheckpoints) {
  // Mistral 7B: q and o 2*4096^2, k and v 2*4096*1024, ffn 3*4096*14336, norms 8192: 32 layers of
  // 218,112,000; embedding and head 2*32000*4096, final norm 4096.
  EXPECT_EQ(total_parameters(read(mistral_config())), 7'241'732'096);
  // Qwen2 7B: q and o 2*3584^2, k and v 2*3584*512, qkv bias 3584 + 2*512, ffn 3*3584*18944, norms 7168: 28
  // layers of 233,057,792; embedding and head 2*152064*3584, final norm 3584.
  EXPECT_EQ(total_parameters(read(qwen2_config())), 7'615'616'512);
  // Qwen1.5-MoE-A2.7B: attention 4*2048^2 + 3*2048, 60 experts of 3*2048*1408, router 2048*60, shared expert
  // 3*2048*5632 and its gate 2048, norms 4096: 24 layers of 570,560,512; 2*151936*2048 + 2048.
  EXPECT_EQ(total_parameters(read(qwen2_moe_config())), 14'315'784'192);
  // DeepSeek-V2-Lite: attention 2048*16*192 + 2048*576 + 512 + 512*16*256 + 16*128*2048 = 13,763,072, norms
  // 4096; first layer's ffn 3*2048*10944; 26 layers with 64 + 2 experts of 3*2048*1408 and router 2048*64;
  // 2*102400*2048 + 2048.
  EXPECT_EQ(total_parameters(read(deepseek_v2_config())), 15'706'484'224);
}

TEST(HfConfig, TiedEmbeddingsAreReadAndDefaultByArchitecture) {
  // Qwen2 0.5B: 24 layers of 14,912,384, tied embedding 151936*896, final norm 896.
  json small = qwen2_config();
  small.update(json::parse(R"({"num_hidden_layers": 24, "hidden_size": 896, "num_attention_heads": 14,
      "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": true})"));
  EXPECT_EQ(total_parameters(read(small)), 494'032'768);
  EXPECT_TRUE(read(gpt2_config()).tied_embeddings);
  EXPECT_FALSE(read(without(llama_config(), "tie_word_embeddings")).tied_embeddings);
  EXPECT_FALSE(read(without(qwen2_config(), "tie_word_embeddings")).tied_embeddings);
}

TEST(HfConfig, ReadsTheSamplesOfTheQwen3Family) {
  const std::string dense = sample("qwen3-8B_config.json");
  if (dense.empty()) GTEST_SKIP() << "../shared/data/hf_configs is not here";
  // Qwen3 8B: q and o 2*4096^2, k and v 2*4096*1024, qk norms 256, ffn 3*4096*12288, norms 8192: 36 layers of
  // 192,946,432; 2*151936*4096 + 4096.
  EXPECT_EQ(total_parameters(read_hf_config(dense, "qwen3-8B_config.json")), 8'190'735'360);
  EXPECT_EQ(named(read_hf_config(sample("qwen3-30B-A3B_config.json"), "f"), "qwen3-30b-a3b"),
            model_preset("qwen3-30b-a3b"));
  // This sample is the July 2025 release, whose only difference in shape is the longer context.
  Transformer large = named(read_hf_config(sample("qwen3-235B-A22B_config.json"), "f"), "qwen3-235b-a22b");
  EXPECT_EQ(large.max_seq, 262144);
  large.max_seq = 40960;
  EXPECT_EQ(large, model_preset("qwen3-235b-a22b"));
}

TEST(HfConfig, ReadsTheDeepseekSampleUnderBothSpellingsOfItsExpertKeys) {
  const std::string text = sample("deepseek_v3_config.json");
  if (text.empty()) GTEST_SKIP() << "../shared/data/hf_configs is not here";
  EXPECT_EQ(named(read_hf_config(text, "f"), "deepseek-v3"), model_preset("deepseek-v3"));
  json official = json::parse(text);
  official["n_routed_experts"] = official["num_routed_experts"];
  official["n_shared_experts"] = official["num_shared_experts"];
  official.erase("num_routed_experts");
  official.erase("num_shared_experts");
  EXPECT_EQ(named(read(official), "deepseek-v3"), model_preset("deepseek-v3"));
}

TEST(HfConfig, AbsentOrNullKeysFollowFromOthers) {
  EXPECT_EQ(read(without(llama_config(), "num_key_value_heads")).kv_heads, 64);
  EXPECT_EQ(read(with(mistral_config(), "num_key_value_heads", nullptr)).kv_heads, 32);
  EXPECT_EQ(read(with(llama_config(), "head_dim", nullptr)).head_dim, 128);
  EXPECT_EQ(read(with(llama_config(), "head_dim", 96)).head_dim, 96);
  EXPECT_EQ(read(with(gpt2_config(), "n_inner", nullptr)).ffn, 3072);
  EXPECT_EQ(read(with(gpt2_config(), "n_inner", 100)).ffn, 100);
  EXPECT_EQ(read(without(deepseek_v2_config(), "n_shared_experts")).experts->shared_ffn, 0);
  EXPECT_EQ(read(with(deepseek_v2_config(), "q_lora_rank", 1536)).latent->q_rank, 1536);
  const Transformer dense = read(with(deepseek_v2_config(), "n_routed_experts", nullptr));
  EXPECT_TRUE(dense.latent && !dense.experts);
}

TEST(HfConfig, RatesOfDropoutAreGpt2s) {
  EXPECT_EQ(read(gpt2_config()).dropout, DropoutRates{});
  const json config = with(with(gpt2_config(), "attn_pdrop", 0.2), "embd_pdrop", 0);
  EXPECT_EQ(read(config).dropout, (DropoutRates{.embedding = 0, .attention = 0.2, .hidden = 0.1}));
  EXPECT_EQ(message_with(gpt2_config(), "resid_pdrop", 1),
            "config.json: model 'gpt2': dropout.hidden: value 1 is not a number from 0 to below 1");
}

TEST(HfConfig, DefaultsThatAreOneModelsNumberAreNotAssumed) {
  EXPECT_EQ(message_without(mistral_config(), "num_key_value_heads"),
            "config.json: key 'num_key_value_heads' is missing: an integer in 1..32 is needed");
  EXPECT_EQ(message_without(deepseek_v2_config(), "q_lora_rank"),
            "config.json: key 'q_lora_rank' is missing: an integer of at least 1 is needed");
  EXPECT_EQ(message_without(with(qwen2_config(), "model_type", "qwen3"), "head_dim"),
            "config.json: key 'head_dim' is missing: an integer of at least 1 is needed");
}

TEST(HfConfig, BiasesOfLlamaAreEverywhereOrNowhere) {
  EXPECT_TRUE(read(with(with(llama_config(), "attention_bias", true), "mlp_bias", true)).linear_bias);
  EXPECT_EQ(message_with(llama_config(), "attention_bias", true),
            "config.json: key 'attention_bias': value true is not equal to 'mlp_bias' (Weft models biases "
            "everywhere "
            "or nowhere)");
  EXPECT_EQ(message_with(llama_config(), "mlp_bias", true),
            "config.json: key 'mlp_bias': value true is not equal to 'attention_bias' (Weft models biases "
            "everywhere "
            "or nowhere)");
}

TEST(HfConfig, QwenSparseStepAndDenseLayersChooseTheSameLayersAsHuggingFace) {
  const json config = with(qwen2_moe_config(), "num_hidden_layers", 10);
  for (std::int64_t step = 1; step <= 4; ++step) {
    for (std::int64_t dense = 0; dense <= 5; ++dense) {
      json only = json::array();
      for (std::int64_t layer = 0; layer < dense; ++layer) only.push_back(layer);
      // Hugging Face: not listed, and (layer + 1) % decoder_sparse_step == 0.
      std::vector<std::int64_t> expected;
      for (std::int64_t layer = dense; layer < 10; ++layer) {
        if ((layer + 1) % step == 0) expected.push_back(layer);
      }
      const Transformer shape = read(with(with(config, "decoder_sparse_step", step), "mlp_only_layers", only));
      EXPECT_EQ(moe_layers(shape), expected) << "step " << step << " dense " << dense;
    }
  }
}

TEST(HfConfig, DenseLayersThatAreNoLeadingRunAreRefused) {
  EXPECT_EQ(message_with(qwen2_moe_config(), "mlp_only_layers", {0, 2}),
            "config.json: key 'mlp_only_layers': value [0,2] is not empty or a leading run 0, 1, 2, ... of layers");
  EXPECT_EQ(message_with(qwen2_moe_config(), "mlp_only_layers", {5}),
            "config.json: key 'mlp_only_layers': value [5] is not empty or a leading run 0, 1, 2, ... of layers");
}

TEST(HfConfig, DeepseekLayerFrequencyChoosesTheSameLayersAsHuggingFace) {
  const json config = with(deepseek_v2_config(), "num_hidden_layers", 12);
  for (std::int64_t frequency = 1; frequency <= 4; ++frequency) {
    for (std::int64_t first = 1; first <= 5; ++first) {
      // Hugging Face: layer >= first_k_dense_replace and layer % moe_layer_freq == 0.
      std::vector<std::int64_t> expected;
      for (std::int64_t layer = first; layer < 12; ++layer) {
        if (layer % frequency == 0) expected.push_back(layer);
      }
      const Transformer shape = read(with(with(config, "moe_layer_freq", frequency), "first_k_dense_replace", first));
      EXPECT_EQ(moe_layers(shape), expected) << "frequency " << frequency << " first " << first;
    }
  }
  EXPECT_EQ(message_with(with(config, "first_k_dense_replace", 0), "moe_layer_freq", 2),
            "config.json: key 'moe_layer_freq': value 2 is not 1 (where first_k_dense_replace is 0)");
}

TEST(HfConfig, OtherArchitecturesAreRefusedByNameWithTheSupportedOnes) {
  EXPECT_EQ(message_with(llama_config(), "model_type", "bert"),
            "config.json: key 'model_type': value \"bert\" is not a supported architecture; supported: gpt2, "
            "llama, "
            "mistral, mixtral, qwen2, qwen3, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3");
  EXPECT_EQ(message_without(llama_config(), "model_type"),
            "config.json: key 'model_type' is missing: a string is needed");
}

TEST(HfConfig, WhatTheShapeCannotSayIsRefused) {
  EXPECT_EQ(message_with(gpt2_config(), "activation_function", "relu"),
            "config.json: key 'activation_function': value \"relu\" is not one of: gelu, gelu_new, gelu_fast, "
            "gelu_python, gelu_pytorch_tanh, gelu_accurate");
  EXPECT_EQ(message_with(llama_config(), "hidden_act", "gelu"),
            "config.json: key 'hidden_act': value \"gelu\" is not one of: silu, swish");
  EXPECT_EQ(message_with(gpt2_config(), "add_cross_attention", true),
            "config.json: key 'add_cross_attention': value true is not false (Weft does not model it)");
  EXPECT_EQ(message_with(deepseek_v2_config(), "attention_bias", true),
            "config.json: key 'attention_bias': value true is not false (Weft does not model it)");
}

TEST(HfConfig, BadValuesNameTheFileTheKeyTheValueAndWhatIsAllowed) {
  EXPECT_EQ(message_with(llama_config(), "hidden_size", "8192"),
            "config.json: key 'hidden_size': value \"8192\" is not an integer of at least 1");
  EXPECT_EQ(message_with(llama_config(), "hidden_size", 8192.5),
            "config.json: key 'hidden_size': value 8192.5 is not an integer of at least 1");
  EXPECT_EQ(message_with(llama_config(), "vocab_size", 0),
            "config.json: key 'vocab_size': value 0 is not an integer of at least 1");
  EXPECT_EQ(message_with(llama_config(), "num_key_value_heads", 65),
            "config.json: key 'num_key_value_heads': value 65 is not an integer in 1..64");
  EXPECT_EQ(message_with(llama_config(), "num_key_value_heads", 7),
            "config.json: key 'num_key_value_heads': value 7 is not a divisor of the 64 attention heads");
  EXPECT_EQ(message_with(llama_config(), "tie_word_embeddings", "no"),
            "config.json: key 'tie_word_embeddings': value \"no\" is not true or false");
  EXPECT_EQ(message_with(gpt2_config(), "n_head", 7),
            "config.json: key 'n_head': value 7 is not a divisor of the hidden size 768");
  EXPECT_EQ(message_with(mixtral_config(), "num_experts_per_tok", 9),
            "config.json: key 'num_experts_per_tok': value 9 is not an integer in 1..8");
  EXPECT_EQ(message_with(llama_config(), "num_hidden_layers", 1'000'000'000)
                .rfind("config.json: model 'llama2-70b': "
                       "layers: value 1000000000",
                       0),
            0U);
  EXPECT_EQ(message_with(llama_config(), "vocab_size", std::int64_t{1} << 62),
            "config.json: model parameters: the size does not fit in 63 bits");
  EXPECT_EQ(message_of("[]"), "config.json: value [] is not an object");
}

TEST(HfConfig, EveryKeyThatDecidesTheShapeIsNeeded) {
  for (const char* key :
       {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
        "max_position_embeddings", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
        "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "first_k_dense_replace"}) {
    const std::string start = "config.json: key '" + std::string(key) + "' is missing: ";
    EXPECT_EQ(message_without(deepseek_v2_config(), key).rfind(start, 0), 0U) << key;
  }
}

TEST(HfConfig, EveryProperPrefixOfAFileIsRefused) {
  const std::string text = deepseek_v2_config().dump();
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_EQ(message_of(text.substr(0, length)).rfind("config.json: not JSON at byte ", 0), 0U) << length;
  }
}

// Any key replaced by any kind of value: a shape that validates, or an Error that names the file; nothing
// else.
TEST(HfConfig, NoValueOfAnyKeyEscapesTheChecks) {
  const std::vector<json> values = {nullptr,
                                    true,
                                    "x",
                                    -1,
                                    0,
                                    1,
                                    3,
                                    1.5,
                                    1e300,
                                    json::array(),
                                    json::array({0, "x"}),
                                    json::object(),
                                    std::int64_t{1} << 31,
                                    std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::uint64_t>::max()};
  for (const json& config : all_configs()) {
    for (const auto& item : config.items()) {
      for (const json& value : values) {
        try {
          validate(read(with(config, item.key(), value)));
        } catch (const Error& error) {
          EXPECT_EQ(std::string(error.what()).rfind("config.json: ", 0), 0U) << error.what();
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
