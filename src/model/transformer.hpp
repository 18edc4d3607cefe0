// The shape of a decoder-only transformer: all that decides its parameters, FLOPs and activations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

enum class NormKind { layer_norm, rms_norm };
enum class Activation { gelu, swiglu };
enum class Positions { learned, rotary };
// Which tokens get the slots of an expert that more tokens choose than it has room for.
enum class GateOrder {
  position,  // token by token, each with all its choices (Switch; Megatron's --moe-token-drop-policy position)
  gshard,    // all first choices in token order, then all second choices, ...
  probs      // batch-prioritised: tokens by falling probability of their first choice
};

// Multi-head latent attention (DeepSeek-V2, section 2.1): queries and keys/values pass through a low rank.
struct LatentAttention {
  std::int64_t q_rank = 0;  // 0: queries are projected directly
  std::int64_t kv_rank = 0;
  std::int64_t nope_head_dim = 0;  // part of a query/key head without rotary position
  std::int64_t rope_head_dim = 0;  // part with rotary position; one key of this size is shared by all heads
  std::int64_t value_head_dim = 0;
  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

struct Experts {
  std::int64_t count = 0;
  std::int64_t top_k = 1;
  std::int64_t ffn = 0;          // inner size of one expert
  std::int64_t shared_ffn = 0;   // inner size of all shared experts together; 0: none
  double capacity_factor = 0;    // tokens an expert takes over its fair share; 0: dropless
  std::int64_t dense_first = 0;  // that many leading layers keep the dense feed-forward
  std::int64_t every = 1;        // of the rest, the last of each `every` layers is MoE
  bool gate_bias = false;        // DeepSeek-V3's score correction, one number per expert
  bool shared_gate = false;      // Qwen2-MoE: a gate of `hidden` weights scales the shared experts
  GateOrder gate_order = GateOrder::position;
  bool renormalise = true;    // with several choices: a token's weights add up to one (Mixtral, GShard)
  double aux_loss_coeff = 0;  // of the balance loss (Switch, equation 4); 0: none
  // DeepSeek's limit on how far a token is spread: experts form so many equal groups, and a token uses experts of at
  // most so many of them. If groups are the experts of a node, a token stays on few nodes.
  std::int64_t router_groups = 1, router_group_topk = 1;
  friend bool operator==(const Experts&, const Experts&) = default;
};

// Fractions of activations that training sets to zero, in models that have dropout (Layout::dropout).
struct DropoutRates {
  double embedding = 0.1, attention = 0.1, hidden = 0.1;  // hidden: what a block adds to the stream
  friend bool operator==(const DropoutRates&, const DropoutRates&) = default;
};

struct Transformer {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // = heads without grouped queries
  std::int64_t head_dim = 0;  // usually hidden / heads; Qwen3 sets it apart
  std::int64_t ffn = 0;       // inner size of the dense feed-forward
  std::int64_t vocab = 0;     // unpadded
  std::int64_t max_seq = 0;   // also the number of learned positions
  NormKind norm = NormKind::layer_norm;
  Activation activation = Activation::gelu;
  Positions positions = Positions::learned;
  bool tied_embeddings = true;
  bool linear_bias = true;  // every linear of attention and feed-forward
  bool qkv_bias = false;    // Qwen2: only the qkv projection (ignored where linear_bias is set)
  bool qk_norm = false;     // Qwen3: RMSNorm of head_dim on queries and keys
  std::optional<LatentAttention> latent;
  std::optional<Experts> experts;
  DropoutRates dropout = {};
  friend bool operator==(const Transformer&, const Transformer&) = default;

  bool is_moe_layer(std::int64_t layer) const;
  std::int64_t moe_layers() const;  // how many layers are MoE
};

// Throws Error naming the field, its value and what is allowed (sizes above zero, heads divisible by
// kv_heads, top_k within the experts, no product of sizes beyond 63 bits, ...).
void validate(const Transformer& shape);

}  // namespace weft
