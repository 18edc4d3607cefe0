// What an operation is: its identity, its key, and the arithmetic and memory traffic that follow from the key.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string_view>

#include "base/element_type.hpp"
#include "base/ids.hpp"
#include "base/units.hpp"
#include "collective/collective.hpp"
#include "compress/compression_format.hpp"

namespace weft {

enum class Phase : std::uint8_t { forward, input_grad, weight_grad, recompute, optimizer };
std::string_view name_of(Phase phase);

// What an operation does in its layer. Part of its identity; the key below says how it is computed.
enum class Role : std::uint8_t {
  embedding,
  positions,
  embedding_dropout,
  attention_norm,
  qkv,
  kv,  // keys and values, where ranks hold copies of them; qkv then makes the queries alone
  qk_norm,
  query_down,
  query_norm,
  query_up,
  kv_down,
  kv_norm,
  kv_up,
  attention,
  attention_out,
  attention_residual,
  ffn_norm,
  ffn_in,
  ffn_act,
  ffn_out,
  ffn_residual,
  router,
  gate,
  dispatch,
  expert_in,
  expert_act,
  expert_out,
  combine,
  shared_in,
  shared_act,
  shared_out,
  shared_sum,  // of the shared and the routed experts' results
  final_norm,
  head,
  loss,
  // communication
  embedding_reduce,
  attention_gather,
  attention_reduce,
  ffn_gather,
  ffn_reduce,
  kv_gather,
  kv_reduce,
  expert_dispatch,
  expert_combine,
  expert_gather,
  expert_reduce,
  head_gather,
  head_reduce,
  loss_reduce,
  stage_input,
  stage_output,
  stage_gather,
  grad_reduce,
  shard_reduce,  // of what grad_reduce leaves, over those that hold the same shard
  replica_reduce,
  tied_reduce,
  param_gather,
  norm_reduce,
  grad_exchange,  // of encoded gradients: everybody gets all summands of its shard
  grad_gather,    // of encoded sums, or of a gradient that K-FAC needs whole
  node_reduce,    // inside a node, of gradients that are encoded between nodes only
  node_gather,    // inside a node, of what came from the others
  curvature_reduce,
  // once a step
  grad_encode,  // of gradients or of their sums, with what earlier encodings took away
  grad_merge,   // decodes the summands of a shard and adds them up
  grad_decode,
  grad_norm,
  // K-FAC (graph/build/kfac.cpp)
  curvature,     // in every micro-batch: of a linear layer's inputs (part 0) or of its output gradients (part 1)
  inversion,     // of their moving average, likewise
  precondition,  // of a linear layer's gradient, by both inverses
  update,
  // ZeRO 3, in every micro-batch
  param_encode,  // once a step, of the shard that the update leaves
  param_decode,  // of all shards
  param_keep,    // keeps this rank's share of gathered parameters for backward (Layout::zero_secondary)
  task           // of a user (graph/extra_task.hpp)
};
std::string_view name_of(Role role);
inline constexpr int kRoles = static_cast<int>(Role::task) + 1;
// Seeds of random rounding number parameters by layer and role, in so many roles. Tasks have no parameters, so that the
// numbers stay what they were before there were tasks.
inline constexpr int kParameterRoles = static_cast<int>(Role::param_keep) + 1;

// How an operation is computed; decides its cost and its kernel.
enum class OpKind : std::uint8_t {
  gemm,           // dims: rows, columns, inner, count (expert products side by side)
  attention,      // dims: sequences, heads, query length, key length, query/key head size, value head size
  norm,           // dims: rows, columns
  elementwise,    // dims: elements, bytes moved per element
  gather_rows,    // dims: rows, columns (embedding, permutation of tokens)
  cross_entropy,  // dims: rows, columns
  gate,           // dims: tokens, experts, choices of a token
  adam,           // dims: parameters, bytes moved per parameter
  square_sum,     // dims: elements
  encode,         // dims: elements, compression format, shards that are encoded apart
  decode,         // dims: elements, compression format, encoded shards side by side, summands of each element
  low_rank,       // dims: elements, rank, elements of left factors, of right factors, LowRankStep
  curvature,      // dims: columns, rows, steps of which one computes it
  inverse,        // dims: rows, steps of which one computes it
  precondition,   // dims: outputs, inputs
  task,           // dims: nanoseconds
  transfer        // a collective or a message
};
std::string_view name_of(OpKind kind);
// How many of OpKey::dims it has.
std::size_t dimensions_of(OpKind kind);

// What PowerSGD computes of gradient and error M: left factors M Q, of the basis Q of the last step; right factors
// transposed(M) P, of the sum P of left factors; their product, which is the sum of gradients.
enum class LowRankStep : std::uint8_t { left, right, product };
inline constexpr int kLowRankSteps = static_cast<int>(LowRankStep::product) + 1;

// What the operands of a matrix product are rounded to just before it. Sums and results keep the key's element type.
enum class ProductFormat : std::uint8_t { stored, fp8, fp4 };
std::string_view name_of(ProductFormat format);
// Bytes of an element in that format. fp4 is NVFP4, which has a scale of one byte for 16 elements; scales of fp8 are of
// whole tensors, or of blocks of 32 and more.
double bytes_per_element(ProductFormat format, ElementType stored);
// Returns whether the products of this role are among those that a low-precision recipe rounds: the linear layers of a
// transformer layer. The router, the head and the core of attention keep the precision.
bool rounds_operands(Role role);

// One key indexes cost, profile and kernel alike.
struct OpKey {
  OpKind kind = OpKind::elementwise;
  Phase phase = Phase::forward;
  ElementType dtype = ElementType::bf16;
  bool causal_half = false;                       // attention: the kernel skips the masked half
  ProductFormat product = ProductFormat::stored;  // gemm
  std::array<std::int64_t, 6> dims{};
  friend auto operator<=>(const OpKey&, const OpKey&) = default;
};

// Returns the format of an encode or decode.
CompressionFormat compression_of(const OpKey& key);
// Returns the bytes of `elements` in equal shards, each encoded by itself; the last one is padded.
Bytes encoded_shards(CompressionFormat format, std::int64_t elements, std::int64_t shards);

// A multiply-add is two. Attention counts the whole score matrix; `executed` halves it where the kernel skips it.
Flops model_flops(const OpKey& key);
Flops executed_flops(const OpKey& key);
// Bytes read and written in device memory by a kernel that touches each operand once.
double memory_traffic(const OpKey& key);

}  // namespace weft
