#include "io/export/megatron_model_flags.hpp"

#include <fmt/format.h>

namespace weft {
namespace {

class ModelFlags {
 public:
  explicit ModelFlags(const Transformer& model) : model_(model) {}

  std::vector<std::string> list(bool dropout) {
    add_shape();
    add_kinds();
    add_attention();
    if (model_.experts) add_experts(*model_.experts);
    add("--attention-dropout", dropout ? model_.dropout.attention : 0.0);
    add("--hidden-dropout", dropout ? model_.dropout.hidden : 0.0);
    return std::move(flags_);
  }

 private:
  void add(const char* flag) { flags_.emplace_back(flag); }
  template <class Value>
  void add(const char* flag, const Value& value) {
    flags_.push_back(fmt::format("{} {}", flag, value));
  }
  void add_if(bool condition, const char* flag) {
    if (condition) add(flag);
  }

  void add_shape() {
    add("--num-layers", model_.layers);
    add("--hidden-size", model_.hidden);
    add("--num-attention-heads", model_.heads);
    add("--ffn-hidden-size", model_.ffn);
    add("--vocab-size", model_.vocab);
    add("--max-position-embeddings", model_.max_seq);
  }

  void add_kinds() {
    add("--normalization", model_.norm == NormKind::rms_norm ? "RMSNorm" : "LayerNorm");
    add("--position-embedding-type", model_.positions == Positions::rotary ? "rope" : "learned_absolute");
    add_if(model_.activation == Activation::swiglu, "--swiglu");
    add_if(!model_.tied_embeddings, "--untie-embeddings-and-output-weights");
    add_if(!model_.linear_bias, "--disable-bias-linear");
    add_if(model_.qkv_bias, "--add-qkv-bias");
    // Of latent attention these are the norms of its two low-rank values.
    add_if(model_.qk_norm || model_.latent, "--qk-layernorm");
  }

  void add_attention() {
    if (!model_.latent) {
      add("--kv-channels", model_.head_dim);
      if (model_.kv_heads == model_.heads) return;
      add("--group-query-attention");
      add("--num-query-groups", model_.kv_heads);
      return;
    }
    add("--multi-latent-attention");
    if (model_.latent->q_rank > 0) add("--q-lora-rank", model_.latent->q_rank);
    add("--kv-lora-rank", model_.latent->kv_rank);
    add("--qk-head-dim", model_.latent->nope_head_dim);
    add("--qk-pos-emb-head-dim", model_.latent->rope_head_dim);
    add("--v-head-dim", model_.latent->value_head_dim);
  }

  void add_experts(const Experts& experts) {
    add("--num-experts", experts.count);
    add("--moe-router-topk", experts.top_k);
    add("--moe-ffn-hidden-size", experts.ffn);
    if (experts.shared_ffn > 0) add("--moe-shared-expert-intermediate-size", experts.shared_ffn);
    add_if(experts.shared_gate, "--moe-shared-expert-gate");
    add_if(experts.gate_bias, "--moe-router-enable-expert-bias");
    add_if(!experts.renormalise, "--moe-router-pre-softmax");
    if (experts.aux_loss_coeff > 0) add("--moe-aux-loss-coeff", experts.aux_loss_coeff);
    if (experts.router_groups > 1) {
      add("--moe-router-num-groups", experts.router_groups);
      add("--moe-router-group-topk", experts.router_group_topk);
    }
    if (experts.capacity_factor > 0) {
      add("--moe-expert-capacity-factor", experts.capacity_factor);
      add("--moe-token-drop-policy", experts.gate_order == GateOrder::probs ? "probs" : "position");
    }
    add_expert_layers();
  }

  // Layers with experts as ranges of equal layers: [0]*3+[1]*58.
  void add_expert_layers() {
    std::string pattern;
    for (std::int64_t begin = 0; begin < model_.layers;) {
      const bool moe = model_.is_moe_layer(begin);
      std::int64_t end = begin;
      while (end < model_.layers && model_.is_moe_layer(end) == moe) ++end;
      pattern += fmt::format("{}[{}]*{}", pattern.empty() ? "" : "+", moe ? 1 : 0, end - begin);
      begin = end;
    }
    flags_.push_back(fmt::format("--moe-layer-freq '({})'", pattern));
  }

  const Transformer& model_;
  std::vector<std::string> flags_;
};

}  // namespace

std::vector<std::string> megatron_model_flags(const Transformer& model, bool dropout) {
  return ModelFlags(model).list(dropout);
}

}  // namespace weft
