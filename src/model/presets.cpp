// max_seq is what the published configuration says, which may exceed the length the model was pre-trained at.
#include "model/presets.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

struct GptRow {
  const char* name;
  std::int64_t layers, hidden, heads;
};

Transformer gpt(const GptRow& row, std::int64_t vocab, std::int64_t max_seq) {
  Transformer shape;
  shape.name = row.name;
  shape.layers = row.layers;
  shape.hidden = row.hidden;
  shape.heads = shape.kv_heads = row.heads;
  shape.head_dim = row.hidden / row.heads;
  shape.ffn = 4 * row.hidden;
  shape.vocab = vocab;
  shape.max_seq = max_seq;
  return shape;
}

struct LlamaRow {
  const char* name;
  std::int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_seq;
};

Transformer llama(const LlamaRow& row) {
  Transformer shape;
  shape.name = row.name;
  shape.layers = row.layers;
  shape.hidden = row.hidden;
  shape.heads = row.heads;
  shape.kv_heads = row.kv_heads;
  shape.head_dim = row.head_dim;
  shape.ffn = row.ffn;
  shape.vocab = row.vocab;
  shape.max_seq = row.max_seq;
  shape.norm = NormKind::rms_norm;
  shape.activation = Activation::swiglu;
  shape.positions = Positions::rotary;
  shape.tied_embeddings = false;
  shape.linear_bias = false;
  return shape;
}

Transformer llama_moe(const LlamaRow& row, const Experts& experts) {
  Transformer shape = llama(row);
  shape.experts = experts;
  return shape;
}

Transformer qwen3_moe(const LlamaRow& row, const Experts& experts) {
  Transformer shape = llama_moe(row, experts);
  shape.qk_norm = true;
  return shape;
}

// Jiang et al. 2024 (Lancet): GPT-2 with an MoE feed-forward in every other layer and a Switch-style gate. Two experts
// a device, so 16 on one node; more devices take more (--experts-per-rank 2).
Transformer gpt_moe(const GptRow& row) {
  Transformer shape = gpt(row, 50257, 1024);
  shape.experts =
      Experts{.count = 16, .top_k = 1, .ffn = shape.ffn, .capacity_factor = 1.25, .every = 2, .aux_loss_coeff = 0.01};
  return shape;
}

// DeepSeek-V3 technical report, section 4.2, without the multi-token-prediction layer.
Transformer deepseek_v3() {
  Transformer shape = llama({"deepseek-v3", 61, 7168, 128, 128, 192, 18432, 129280, 163840});
  shape.latent =
      LatentAttention{.q_rank = 1536, .kv_rank = 512, .nope_head_dim = 128, .rope_head_dim = 64, .value_head_dim = 128};
  shape.experts = Experts{.count = 256,
                          .top_k = 8,
                          .ffn = 2048,
                          .shared_ffn = 2048,
                          .dense_first = 3,
                          .gate_bias = true,
                          .router_groups = 8,
                          .router_group_topk = 4};
  return shape;
}

void add_gpt(std::vector<Transformer>& shapes) {
  // Radford et al. 2019, Table 2; heads of 64 as in the released weights.
  constexpr GptRow kGpt2[] = {
      {"gpt2", 12, 768, 12}, {"gpt2-medium", 24, 1024, 16}, {"gpt2-large", 36, 1280, 20}, {"gpt2-xl", 48, 1600, 25}};
  for (const GptRow& row : kGpt2) shapes.push_back(gpt(row, 50257, 1024));
  constexpr GptRow kMegatron[] = {
      // Narayanan et al. 2021 (SC21), Table 1.
      {"megatron-1.7b", 24, 2304, 24},
      {"megatron-3.6b", 30, 3072, 32},
      {"megatron-7.5b", 36, 4096, 32},
      {"megatron-18.4b", 40, 6144, 48},
      {"megatron-39.1b", 48, 8192, 64},
      {"megatron-76.1b", 60, 10240, 80},
      {"megatron-145.6b", 80, 12288, 96},
      {"megatron-310.1b", 96, 16384, 128},
      {"megatron-529.6b", 105, 20480, 128},
      {"megatron-1t", 128, 25600, 160},
      // Korthikanti et al. 2022, Table 3.
      {"megatron-22b", 48, 6144, 64},
      {"gpt3-175b", 96, 12288, 96},
      {"mt-nlg-530b", 105, 20480, 128},
  };
  for (const GptRow& row : kMegatron) shapes.push_back(gpt(row, 51200, 2048));
  shapes.push_back(gpt_moe({"gpt2-s-moe", 12, 768, 12}));
  shapes.push_back(gpt_moe({"gpt2-l-moe", 24, 1024, 16}));
}

void add_llama(std::vector<Transformer>& shapes) {
  constexpr LlamaRow kLlama[] = {
      {"llama2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 4096},
      {"llama2-13b", 40, 5120, 40, 40, 128, 13824, 32000, 4096},
      {"llama2-70b", 80, 8192, 64, 8, 128, 28672, 32000, 4096},
      {"llama3-8b", 32, 4096, 32, 8, 128, 14336, 128256, 8192},
      {"llama3-70b", 80, 8192, 64, 8, 128, 28672, 128256, 8192},
      {"llama3-405b", 126, 16384, 128, 8, 128, 53248, 128256, 131072},
  };
  for (const LlamaRow& row : kLlama) shapes.push_back(llama(row));
}

void add_moe(std::vector<Transformer>& shapes) {
  shapes.push_back(
      llama_moe({"mixtral-8x7b", 32, 4096, 32, 8, 128, 14336, 32000, 32768}, {.count = 8, .top_k = 2, .ffn = 14336}));
  shapes.push_back(
      llama_moe({"mixtral-8x22b", 56, 6144, 48, 8, 128, 16384, 32000, 65536}, {.count = 8, .top_k = 2, .ffn = 16384}));
  shapes.push_back(
      qwen3_moe({"qwen3-30b-a3b", 48, 2048, 32, 4, 128, 6144, 151936, 40960}, {.count = 128, .top_k = 8, .ffn = 768}));
  shapes.push_back(qwen3_moe({"qwen3-235b-a22b", 94, 4096, 64, 4, 128, 12288, 151936, 40960},
                             {.count = 128, .top_k = 8, .ffn = 1536}));
  shapes.push_back(deepseek_v3());
}

std::vector<Transformer> all_presets() {
  std::vector<Transformer> shapes;
  add_gpt(shapes);
  add_llama(shapes);
  add_moe(shapes);
  return shapes;
}

}  // namespace

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const Transformer& shape : all_presets()) names.push_back(shape.name);
  std::sort(names.begin(), names.end());
  return names;
}

Transformer model_preset(std::string_view name) {
  for (const Transformer& shape : all_presets()) {
    if (shape.name == name) return shape;
  }
  fail("model '{}' is not a preset{}", name, suggestion(name, model_preset_names()));
}

}  // namespace weft
