// Parameters and FLOPs of a model by the papers' formulas. The step graph is tested against these.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "model/transformer.hpp"

namespace weft {

// `selective` recomputes the attention core (Korthikanti et al. 2022), `full` every layer. `local` is like full but
// keeps what the all-to-alls of experts brought, so that backward repeats none of them.
enum class Recompute { none, selective, full, local };
inline bool recomputes_layers(Recompute recompute) {
  return recompute == Recompute::full || recompute == Recompute::local;
}
enum class AttentionKernel { flash, unfused };

struct LayerParameters {
  std::int64_t attention = 0;  // projections and their biases, qk norms, latent norms
  std::int64_t dense_ffn = 0;  // the dense feed-forward, or the shared experts of an MoE layer and their gate
  std::int64_t router = 0;     // without bias, but with DeepSeek-V3's score correction
  std::int64_t experts = 0;    // all routed experts together
  std::int64_t norms = 0;      // the two block norms
  std::int64_t total() const { return attention + dense_ffn + router + experts + norms; }
};

LayerParameters layer_parameters(const Transformer& shape, std::int64_t layer);
std::int64_t embedding_parameters(const Transformer& shape);  // token table and learned positions
std::int64_t head_parameters(const Transformer& shape);       // final norm, and the output matrix unless tied
// Everything, with unpadded vocabulary.
std::int64_t total_parameters(const Transformer& shape);
// Parameters that one token meets: routed experts count top_k of count.
std::int64_t active_parameters(const Transformer& shape);

// FLOPs of one forward pass over `sequences` sequences of length seq; a multiply-add is two. Matrix products
// only, as Megatron's formula counts them (SC21, appendix): 24 B s l h^2 (1 + s/6h + V/12lh) for GPT.
// Attention counts the full s x s matrix, causal or not, as published MFU figures do; a token meets top_k
// experts whatever the capacity factor.
Flops forward_flops(const Transformer& shape, std::int64_t seq, std::int64_t sequences);
// Forward and backward: three times the forward pass.
Flops model_flops(const Transformer& shape, std::int64_t seq, std::int64_t sequences);
// model_flops plus what is computed again: the two attention products (selective), so 4 B s^2 h l more for
// GPT, or every layer's forward but not the logits (full), so 96 B s l h^2 (1 + s/6h + V/16lh) in all; local: as full
// without the products that make what routed experts return. `recomputed`: of full and local the layers that are;
// empty: all.
Flops hardware_flops(const Transformer& shape, std::int64_t seq, std::int64_t sequences, Recompute recompute,
                     const std::vector<bool>& recomputed = {});

// The FLOPs of attention in one forward pass on the half of the score matrix that a causal mask hides.
Flops masked_flops(const Transformer& shape, std::int64_t seq, std::int64_t sequences);

}  // namespace weft
