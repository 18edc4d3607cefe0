// Bytes of a model by the papers' formulas, which tests compare graphs and plans with: activations of a GPT layer, and
// the state that training keeps per parameter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "model/counts.hpp"

namespace weft {

struct ActivationOptions {
  std::int64_t seq = 0;
  std::int64_t micro_batch = 1;
  std::int64_t tp = 1;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  AttentionKernel attention = AttentionKernel::unfused;
};

struct StateBytes {
  Bytes weights, gradients, optimizer;
  Bytes total() const { return weights + gradients + optimizer; }
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};

inline void check_activation_options(const Transformer& shape, const ActivationOptions& options) {
  const bool paper_layer = shape.activation == Activation::gelu && shape.kv_heads == shape.heads &&
                           shape.ffn / 4 == shape.hidden && shape.ffn % 4 == 0 &&
                           shape.hidden / shape.heads == shape.head_dim && shape.hidden % shape.heads == 0 &&
                           !shape.latent && !shape.experts;
  if (!paper_layer) {
    fail("model '{}': activation bytes are known for GPT layers only (GELU, ffn 4h, multi-head attention)", shape.name);
  }
  if (options.seq < 1) fail("seq: value {} is not at least 1", options.seq);
  if (options.micro_batch < 1) fail("micro-batch: value {} is not at least 1", options.micro_batch);
  if (options.tp < 1 || shape.heads % options.tp != 0) {
    fail("tp: value {} does not divide the {} heads of model '{}'", options.tp, shape.heads, shape.name);
  }
  if (options.sequence_parallel && options.seq % options.tp != 0) {
    fail("seq: value {} is not divisible by tp {} (sequence parallelism)", options.seq, options.tp);
  }
}

inline std::int64_t share(std::int64_t parameters, std::int64_t d) {
  return parameters / d + (parameters % d != 0 ? 1 : 0);
}

inline Bytes per_parameter(std::int64_t bytes, std::int64_t parameters) {
  return {checked_product({bytes, parameters}, "training state")};
}

inline void check_state(std::int64_t parameters, std::int64_t d) {
  if (parameters < 0) fail("parameters: value {} is not at least 0", parameters);
  if (d < 1) fail("dp: value {} is not at least 1", d);
}

// Korthikanti et al. 2022, Table 2: bytes that one GPT layer keeps for backward, 16-bit activations, with
// dropout. Throws where the layer is not that paper's (GELU, ffn 4h, plain multi-head attention, no experts)
// or tp does not divide it. Flash attention keeps no s x s matrix, so its rows are those of selective
// recompute (the softmax statistics that it does keep, one fp32 per row and head, are left out). Full
// recompute keeps the layer's input, which sequence parallelism shards.
inline Bytes gpt_layer_activation_bytes(const Transformer& shape, const ActivationOptions& options) {
  check_activation_options(shape, options);
  constexpr std::string_view what = "activations";
  const std::int64_t sbh = checked_product({options.seq, options.micro_batch, shape.hidden}, what);
  const std::int64_t sbh_sharded = sbh / options.tp;  // exact: tp divides heads, heads divide hidden
  // Outside the tensor-parallel region.
  const std::int64_t outside = options.sequence_parallel ? sbh_sharded : sbh;
  if (recomputes_layers(options.recompute)) return {checked_product({2, outside}, what)};
  // 34 = 24 inside + 10 outside: inputs of the two norms 4, of the two blocks 4, masks of the two dropouts 2.
  const std::int64_t linear =
      checked_sum({checked_product({10, outside}, what), checked_product({24, sbh_sharded}, what)}, what);
  const bool keeps_scores = options.recompute == Recompute::none && options.attention == AttentionKernel::unfused;
  if (!keeps_scores) return {linear};
  // sbh * 5as/h: softmax output and dropout output of 2 bytes, dropout mask of 1.
  const std::int64_t scores =
      checked_product({5, shape.heads / options.tp, options.seq, options.seq, options.micro_batch}, what);
  return {checked_sum({linear, scores}, what)};
}

// Micro-batches in flight on pipeline rank i of p under 1F1B: min(m, p - i).
inline std::int64_t in_flight_micro_batches(std::int64_t stages, std::int64_t stage, std::int64_t micro_batches) {
  if (stages < 1) fail("pp: value {} is not at least 1", stages);
  if (stage < 0 || stage >= stages) fail("stage: value {} is not in 0..{}", stage, stages - 1);
  if (micro_batches < 1) fail("micro-batches: value {} is not at least 1", micro_batches);
  return std::min(micro_batches, stages - stage);
}

// Mixed precision with Adam as in the ZeRO paper: 2 + 2 + 12 bytes a parameter, sharded over d by stage 0..3.
// A shard holds whole parameters, so d that does not divide them rounds up.
inline StateBytes zero_state_bytes(std::int64_t parameters, int stage, std::int64_t d) {
  check_state(parameters, d);
  if (stage < 0 || stage > 3) fail("zero: value {} is not in 0..3", stage);
  const auto held = [&](int sharded_from) { return stage >= sharded_from ? share(parameters, d) : parameters; };
  return {per_parameter(2, held(3)), per_parameter(2, held(2)), per_parameter(12, held(1))};
}

// Megatron: fp32 gradients, 18 bytes a parameter, 6 + 12/d with the distributed optimizer.
inline StateBytes megatron_state_bytes(std::int64_t parameters, bool distributed_optimizer, std::int64_t d) {
  check_state(parameters, d);
  return {per_parameter(2, parameters), per_parameter(4, parameters),
          per_parameter(12, distributed_optimizer ? share(parameters, d) : parameters)};
}

}  // namespace weft
