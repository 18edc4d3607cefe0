// Parameters, FLOPs and bytes of a model by the papers' formulas. The step graph is tested against these.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "model/transformer.hpp"

namespace weft {

// `selective` recomputes the attention core (Korthikanti et al. 2022), `full` every layer. `local` is like full but
// keeps what the all-to-alls of experts brought, so that backward repeats none of them.
enum class Recompute { none, selective, full, local };
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
// without the products that make what routed experts return.
Flops hardware_flops(const Transformer& shape, std::int64_t seq, std::int64_t sequences, Recompute recompute);

// The FLOPs of attention in one forward pass on the half of the score matrix that a causal mask hides.
Flops masked_flops(const Transformer& shape, std::int64_t seq, std::int64_t sequences);

struct ActivationOptions {
  std::int64_t seq = 0;
  std::int64_t micro_batch = 1;
  std::int64_t tp = 1;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  AttentionKernel attention = AttentionKernel::unfused;
};
// Korthikanti et al. 2022, Table 2: bytes that one GPT layer keeps for backward, 16-bit activations, with
// dropout. Throws where the layer is not that paper's (GELU, ffn 4h, plain multi-head attention, no experts)
// or tp does not divide it. Flash attention keeps no s x s matrix, so its rows are those of selective
// recompute (the softmax statistics that it does keep, one fp32 per row and head, are left out). Full
// recompute keeps the layer's input, which sequence parallelism shards.
Bytes gpt_layer_activation_bytes(const Transformer& shape, const ActivationOptions& options);
// Micro-batches in flight on pipeline rank i of p under 1F1B: min(m, p - i).
std::int64_t in_flight_micro_batches(std::int64_t stages, std::int64_t stage, std::int64_t micro_batches);

struct StateBytes {
  Bytes weights, gradients, optimizer;
  Bytes total() const { return weights + gradients + optimizer; }
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};
// Mixed precision with Adam as in the ZeRO paper: 2 + 2 + 12 bytes a parameter, sharded over d by stage 0..3.
// A shard holds whole parameters, so d that does not divide them rounds up.
StateBytes zero_state_bytes(std::int64_t parameters, int stage, std::int64_t d);
// Megatron: fp32 gradients, 18 bytes a parameter, 6 + 12/d with the distributed optimizer.
StateBytes megatron_state_bytes(std::int64_t parameters, bool distributed_optimizer, std::int64_t d);

}  // namespace weft
