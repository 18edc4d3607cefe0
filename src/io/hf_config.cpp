// One reader per `model_type`; what several of them share stands above them.
#include "io/hf_config.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "io/json/json_reader.hpp"

namespace weft {
namespace {

std::int64_t size(const JsonObject& config, const std::string& key) {
  return config.integer(key, 1);
}

// Refuses features that the shape cannot express, so that no count is silently wrong.
void need_false(const JsonObject& config, const std::string& key) {
  if (config.boolean_or(key, false)) config.reject(key, "false (Weft does not model it)");
}

void need_activation(const JsonObject& config, const std::string& key, const std::string& fallback,
                     std::initializer_list<std::string_view> known) {
  const std::string name = config.string_or(key, fallback);
  for (const std::string_view accepted : known) {
    if (name == accepted) return;
  }
  config.reject(key, fmt::format("one of: {}", fmt::join(known, ", ")));
}

std::int64_t hidden_per_head(const JsonObject& config, const Transformer& shape, const std::string& heads_key) {
  if (shape.hidden % shape.heads != 0) {
    config.reject(heads_key, fmt::format("a divisor of the hidden size {}", shape.hidden));
  }
  return shape.hidden / shape.heads;
}

std::string name_or(const JsonObject& config, const std::string& fallback) {
  const std::string path = config.string_or("_name_or_path", "");
  return path.empty() ? fallback : path;
}

Transformer read_gpt2(const JsonObject& config) {
  need_activation(config, "activation_function", "gelu_new",
                  {"gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "gelu_accurate"});
  need_false(config, "add_cross_attention");
  Transformer shape;
  shape.layers = size(config, "n_layer");
  shape.hidden = size(config, "n_embd");
  shape.heads = shape.kv_heads = size(config, "n_head");
  shape.head_dim = hidden_per_head(config, shape, "n_head");
  shape.ffn = config.has("n_inner") ? size(config, "n_inner")
                                    : checked_product({4, shape.hidden}, config.where() + ": key 'n_embd'");
  shape.vocab = size(config, "vocab_size");
  shape.max_seq = size(config, "n_positions");
  shape.tied_embeddings = config.boolean_or("tie_word_embeddings", true);
  shape.dropout = {.embedding = config.number_or("embd_pdrop", 0.1, 0, 1),
                   .attention = config.number_or("attn_pdrop", 0.1, 0, 1),
                   .hidden = config.number_or("resid_pdrop", 0.1, 0, 1)};
  return shape;
}

// What Llama and its descendants share. Attention is left to the caller.
Transformer read_llama_base(const JsonObject& config) {
  need_activation(config, "hidden_act", "silu", {"silu", "swish"});
  Transformer shape;
  shape.layers = size(config, "num_hidden_layers");
  shape.hidden = size(config, "hidden_size");
  shape.heads = size(config, "num_attention_heads");
  shape.ffn = size(config, "intermediate_size");
  shape.vocab = size(config, "vocab_size");
  shape.max_seq = size(config, "max_position_embeddings");
  shape.norm = NormKind::rms_norm;
  shape.activation = Activation::swiglu;
  shape.positions = Positions::rotary;
  shape.tied_embeddings = config.boolean_or("tie_word_embeddings", false);
  shape.linear_bias = false;
  return shape;
}

// Where the class's own default is one model's number (8 kv heads, for instance), an absent key is an error; null never
// is.
struct ClassDefaults {
  bool kv_heads_needed = false;
  bool head_dim_needed = false;
};

Transformer read_llama_like(const JsonObject& config, const ClassDefaults& defaults) {
  Transformer shape = read_llama_base(config);
  const std::string kv_key = "num_key_value_heads";
  const bool kv_given = config.has(kv_key) || (defaults.kv_heads_needed && !config.is_null(kv_key));
  shape.kv_heads = kv_given ? config.integer(kv_key, 1, shape.heads) : shape.heads;
  if (shape.heads % shape.kv_heads != 0) {
    config.reject(kv_key, fmt::format("a divisor of the {} attention heads", shape.heads));
  }
  const bool dim_given = config.has("head_dim") || (defaults.head_dim_needed && !config.is_null("head_dim"));
  shape.head_dim = dim_given ? size(config, "head_dim") : hidden_per_head(config, shape, "num_attention_heads");
  return shape;
}

Transformer read_llama(const JsonObject& config) {
  Transformer shape = read_llama_like(config, {});
  const bool attention_bias = config.boolean_or("attention_bias", false);
  if (attention_bias != config.boolean_or("mlp_bias", false)) {
    const auto [set, other] =
        attention_bias ? std::pair{"attention_bias", "mlp_bias"} : std::pair{"mlp_bias", "attention_bias"};
    config.reject(set, fmt::format("equal to '{}' (Weft models biases everywhere or nowhere)", other));
  }
  shape.linear_bias = attention_bias;
  return shape;
}

Transformer read_mistral(const JsonObject& config) {
  return read_llama_like(config, {.kv_heads_needed = true});
}

Transformer read_mixtral(const JsonObject& config) {
  Transformer shape = read_mistral(config);
  Experts experts;
  experts.count = size(config, "num_local_experts");
  experts.top_k = config.integer("num_experts_per_tok", 1, experts.count);
  experts.ffn = shape.ffn;
  shape.experts = experts;
  return shape;
}

Transformer read_qwen2(const JsonObject& config) {
  Transformer shape = read_llama_like(config, {});
  shape.qkv_bias = true;
  return shape;
}

Transformer read_qwen3(const JsonObject& config, bool kv_heads_needed) {
  need_false(config, "attention_bias");
  Transformer shape = read_llama_like(config, {.kv_heads_needed = kv_heads_needed, .head_dim_needed = true});
  shape.qk_norm = true;
  return shape;
}

// Qwen lists layers that stay dense; the shape can only express leading ones.
std::int64_t leading_dense_layers(const JsonObject& config) {
  if (!config.has("mlp_only_layers")) return 0;
  std::int64_t expected = 0;
  for (const std::int64_t layer : config.integers("mlp_only_layers", 0)) {
    if (layer != expected++) config.reject("mlp_only_layers", "empty or a leading run 0, 1, 2, ... of layers");
  }
  return expected;
}

Experts read_qwen_experts(const JsonObject& config, std::int64_t layers) {
  Experts experts;
  experts.count = size(config, "num_experts");
  experts.top_k = config.integer("num_experts_per_tok", 1, experts.count);
  experts.ffn = size(config, "moe_intermediate_size");
  experts.every = config.integer_or("decoder_sparse_step", 1, 1, layers);
  // MoE layers are those after the dense ones with (layer + 1) % step == 0: groups of `step` counted from layer 0.
  const std::int64_t dense = leading_dense_layers(config);
  experts.dense_first = dense - dense % experts.every;
  return experts;
}

Transformer read_qwen2_moe(const JsonObject& config) {
  Transformer shape = read_llama_like(config, {});
  shape.qkv_bias = config.boolean_or("qkv_bias", true);
  shape.experts = read_qwen_experts(config, shape.layers);
  shape.experts->shared_ffn = size(config, "shared_expert_intermediate_size");
  shape.experts->shared_gate = true;
  return shape;
}

Transformer read_qwen3_moe(const JsonObject& config) {
  Transformer shape = read_qwen3(config, true);
  shape.experts = read_qwen_experts(config, shape.layers);
  return shape;
}

// The official files have n_routed_experts and n_shared_experts; some copies have num_ in place of n_.
std::string either(const JsonObject& config, const std::string& official, const std::string& variant) {
  return !config.has(official) && config.has(variant) ? variant : official;
}

// DeepSeek: MoE from layer first_k_dense_replace on, where layer % moe_layer_freq == 0.
void set_deepseek_layers(const JsonObject& config, std::int64_t layers, Experts& experts) {
  const std::int64_t first = config.integer("first_k_dense_replace", 0, layers - 1);
  experts.every = config.integer_or("moe_layer_freq", 1, 1, layers);
  const std::int64_t first_moe = (first + experts.every - 1) / experts.every * experts.every;
  experts.dense_first = first_moe - (experts.every - 1);
  if (experts.dense_first < 0) config.reject("moe_layer_freq", "1 (where first_k_dense_replace is 0)");
}

Transformer read_deepseek(const JsonObject& config, bool gate_bias) {
  need_false(config, "attention_bias");
  Transformer shape = read_llama_base(config);
  LatentAttention latent;
  latent.q_rank = config.is_null("q_lora_rank") ? 0 : size(config, "q_lora_rank");
  latent.kv_rank = size(config, "kv_lora_rank");
  latent.nope_head_dim = size(config, "qk_nope_head_dim");
  latent.rope_head_dim = size(config, "qk_rope_head_dim");
  latent.value_head_dim = size(config, "v_head_dim");
  shape.latent = latent;
  shape.kv_heads = shape.heads;
  shape.head_dim = checked_sum({latent.nope_head_dim, latent.rope_head_dim}, config.where() + ": head size");
  if (config.is_null("n_routed_experts")) return shape;  // every layer is dense

  Experts experts;
  experts.count = size(config, either(config, "n_routed_experts", "num_routed_experts"));
  experts.top_k = config.integer("num_experts_per_tok", 1, experts.count);
  experts.ffn = size(config, "moe_intermediate_size");
  const std::string shared_key = either(config, "n_shared_experts", "num_shared_experts");
  experts.shared_ffn = checked_product({config.integer_or(shared_key, 0, 0), experts.ffn},
                                       fmt::format("{}: key '{}'", config.where(), shared_key));
  experts.gate_bias = gate_bias;
  // Files of DeepSeek-V2-Lite have both as null: no limit.
  if (config.has("n_group") && !config.is_null("n_group")) {
    experts.router_groups = config.integer("n_group", 1, experts.count);
    experts.router_group_topk = config.integer_or("topk_group", experts.router_groups, 1, experts.router_groups);
  }
  set_deepseek_layers(config, shape.layers, experts);
  shape.experts = experts;
  return shape;
}

Transformer read_deepseek_v2(const JsonObject& config) {
  return read_deepseek(config, false);
}

// The score correction is the mark of the "noaux_tc" router, the only one of the released model.
Transformer read_deepseek_v3(const JsonObject& config) {
  return read_deepseek(config, config.string_or("topk_method", "noaux_tc") == "noaux_tc");
}

struct Reader {
  const char* model_type;
  Transformer (*read)(const JsonObject&);
};

constexpr std::array kReaders = {
    Reader{"gpt2", read_gpt2},
    Reader{"llama", read_llama},
    Reader{"mistral", read_mistral},
    Reader{"mixtral", read_mixtral},
    Reader{"qwen2", read_qwen2},
    Reader{"qwen3", [](const JsonObject& config) { return read_qwen3(config, false); }},
    Reader{"qwen2_moe", read_qwen2_moe},
    Reader{"qwen3_moe", read_qwen3_moe},
    Reader{"deepseek_v2", read_deepseek_v2},
    Reader{"deepseek_v3", read_deepseek_v3},
};

}  // namespace

std::vector<std::string> hf_model_types() {
  std::vector<std::string> types;
  for (const Reader& reader : kReaders) types.emplace_back(reader.model_type);
  return types;
}

HfExtras read_hf_extras(const std::string& text, const std::string& file_name) {
  const nlohmann::json json = parse_json(text, file_name);
  const JsonObject config(json, file_name);
  HfExtras extras;
  // Qwen's files have a window and beside it whether it is used; Mistral's use the window that they have.
  const std::string type = config.string("model_type");
  const bool used = type == "mistral" || type == "mixtral" ||
                    (type.starts_with("qwen") && config.boolean_or("use_sliding_window", false));
  if (used && config.has("sliding_window")) extras.sliding_window = config.integer("sliding_window", 1);
  if (config.has("quantization_config")) {
    const JsonObject quantization = config.object("quantization_config");
    extras.quantization = quantization.string_or("quant_method", "of an unnamed method");
  }
  return extras;
}

Transformer read_hf_config(const std::string& text, const std::string& file_name) {
  const nlohmann::json json = parse_json(text, file_name);
  const JsonObject config(json, file_name);
  const std::string model_type = config.string("model_type");
  for (const Reader& reader : kReaders) {
    if (model_type != reader.model_type) continue;
    Transformer shape = reader.read(config);
    shape.name = name_or(config, model_type);
    try {
      validate(shape);
    } catch (const Error& error) {
      fail("{}: {}", file_name, error.what());
    }
    return shape;
  }
  config.reject("model_type",
                fmt::format("a supported architecture; supported: {}", fmt::join(hf_model_types(), ", ")));
}

}  // namespace weft
