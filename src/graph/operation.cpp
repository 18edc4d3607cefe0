#include "graph/operation.hpp"

#include "base/checked.hpp"
#include "base/enum_name.hpp"
#include "base/error.hpp"

namespace weft {

std::string_view name_of(Phase phase) {
  static constexpr std::string_view kNames[] = {"forward", "input_grad", "weight_grad", "recompute", "optimizer"};
  return enum_name(kNames, phase);
}

std::string_view name_of(Role role) {
  static constexpr auto kNames = split_names<kRoles>(
      "embedding positions embedding_dropout attention_norm qkv kv qk_norm query_down query_norm query_up kv_down "
      "kv_norm kv_up attention attention_out attention_residual ffn_norm ffn_in ffn_act ffn_out ffn_residual router "
      "gate dispatch expert_in expert_act expert_out combine shared_in shared_act shared_out shared_sum final_norm "
      "head loss embedding_reduce attention_gather attention_reduce ffn_gather ffn_reduce kv_gather kv_reduce "
      "expert_dispatch expert_combine expert_gather expert_reduce head_gather head_reduce loss_reduce stage_input "
      "stage_output stage_gather grad_reduce shard_reduce replica_reduce tied_reduce param_gather norm_reduce "
      "grad_exchange grad_gather node_reduce node_gather curvature_reduce grad_encode grad_merge grad_decode grad_norm "
      "curvature inversion "
      "precondition update "
      "param_encode param_decode param_keep task");
  return enum_name(kNames, role);
}

std::string_view name_of(OpKind kind) {
  static constexpr std::string_view kNames[] = {
      "gemm",   "attention", "norm",     "elementwise", "gather_rows", "cross_entropy", "gate", "adam",    "square_sum",
      "encode", "decode",    "low_rank", "curvature",   "inverse",     "precondition",  "task", "transfer"};
  return enum_name(kNames, kind);
}

std::string_view name_of(ProductFormat format) {
  static constexpr std::string_view kNames[] = {"stored", "fp8", "fp4"};
  return enum_name(kNames, format);
}

double bytes_per_element(ProductFormat format, ElementType stored) {
  switch (format) {
    case ProductFormat::fp8:
      return 1;
    case ProductFormat::fp4:
      return 0.5 + 1.0 / 16;
    case ProductFormat::stored:
      break;
  }
  return static_cast<double>(size_of(stored).value);
}

bool rounds_operands(Role role) {
  switch (role) {
    case Role::qkv:
    case Role::kv:
    case Role::query_down:
    case Role::query_up:
    case Role::kv_down:
    case Role::kv_up:
    case Role::attention_out:
    case Role::ffn_in:
    case Role::ffn_out:
    case Role::expert_in:
    case Role::expert_out:
    case Role::shared_in:
    case Role::shared_out:
      return true;
    default:
      return false;
  }
}

std::size_t dimensions_of(OpKind kind) {
  static constexpr std::size_t kDimensions[] = {4, 6, 2, 2, 2, 2, 3, 2, 1, 3, 4, 5, 3, 2, 2, 1, 0};
  return kDimensions[static_cast<std::size_t>(kind)];
}

CompressionFormat compression_of(const OpKey& key) {
  WEFT_CHECK(key.kind == OpKind::encode || key.kind == OpKind::decode);
  return static_cast<CompressionFormat>(key.dims[1]);
}

Bytes encoded_shards(CompressionFormat format, std::int64_t elements, std::int64_t shards) {
  const std::int64_t shard = (elements + shards - 1) / shards;
  return {checked_product({shards, encoded_bytes(format, shard).value}, "encoded shards")};
}

namespace {

double dim(const OpKey& key, std::size_t i) {
  return static_cast<double>(key.dims[i]);
}

// Bytes of `elements` in so many shards, each encoded by itself.
double encoded_traffic(const OpKey& key, std::int64_t shards) {
  return static_cast<double>(encoded_shards(compression_of(key), key.dims[0], shards).value);
}

// Forward is two products (scores, weighted values), backward four; a flash kernel recomputes the scores: five.
double attention_products(const OpKey& key) {
  return key.phase == Phase::input_grad ? 2 : 1;
}

}  // namespace

Flops model_flops(const OpKey& key) {
  switch (key.kind) {
    case OpKind::gemm:
      return {2 * dim(key, 0) * dim(key, 1) * dim(key, 2) * dim(key, 3)};
    case OpKind::attention:
      return {attention_products(key) * 2 * dim(key, 0) * dim(key, 1) * dim(key, 2) * dim(key, 3) *
              (dim(key, 4) + dim(key, 5))};
    default:
      return {0};
  }
}

Flops executed_flops(const OpKey& key) {
  Flops flops = model_flops(key);
  if (key.kind == OpKind::attention && key.causal_half) {
    flops.value *= key.phase == Phase::input_grad ? 0.5 * 1.25 : 0.5;
  }
  // A product with a thin matrix; making the columns of a factor orthonormal is a product of the factor with itself.
  if (key.kind == OpKind::low_rank) flops.value = 2 * dim(key, 1) * (dim(key, 0) + dim(key, 2) + dim(key, 3));
  return flops;
}

double memory_traffic(const OpKey& key) {
  const auto size = static_cast<double>(size_of(key.dtype).value);
  switch (key.kind) {
    case OpKind::gemm:
      return dim(key, 3) * (bytes_per_element(key.product, key.dtype) * dim(key, 2) * (dim(key, 0) + dim(key, 1)) +
                            size * dim(key, 0) * dim(key, 1));
    case OpKind::attention: {
      const double operands = dim(key, 0) * dim(key, 1) * (dim(key, 2) + dim(key, 3)) * (dim(key, 4) + dim(key, 5));
      const double passes = key.phase == Phase::input_grad ? 2 : 1;
      if (key.causal_half) return size * passes * operands;
      // An unfused kernel writes the scores, scales and masks them, takes the softmax, drops elements and reads the
      // result: ten passes over s x s.
      return size * passes * (operands + 10 * dim(key, 0) * dim(key, 1) * dim(key, 2) * dim(key, 3));
    }
    case OpKind::norm:  // dX reads input and gradient and writes one; the others touch two tensors
      return size * dim(key, 0) * dim(key, 1) * (key.phase == Phase::input_grad ? 3 : 2);
    case OpKind::elementwise:
      return dim(key, 0) * dim(key, 1);
    case OpKind::gather_rows:
      return 2 * size * dim(key, 0) * dim(key, 1);
    case OpKind::cross_entropy:
      // In fp32: copied, its maximum found, shifted, exponentiated and summed.
      return (size + 4 + 4 + 4 + 4) * dim(key, 0) * dim(key, 1);
    case OpKind::gate:
      // Like cross_entropy, softmax in fp32, then the largest k; then a slot and a weight for each choice.
      return dim(key, 0) * ((size + 4 + 4 + 4 + 4) * dim(key, 1) + 8 * dim(key, 2));
    case OpKind::adam:
      return dim(key, 0) * dim(key, 1);
    case OpKind::square_sum:
      return size * dim(key, 0);
    case OpKind::encode:  // once a step it reads gradients and errors, writes errors and codes
      return (key.phase == Phase::optimizer ? 3 : 1) * size * dim(key, 0) + encoded_traffic(key, key.dims[2]);
    case OpKind::decode:
      return size * dim(key, 0) + dim(key, 3) * encoded_traffic(key, key.dims[2]);
    case OpKind::low_rank:  // reads gradients and errors, and writes both when their sum is known
      return size * ((key.dims[4] == static_cast<std::int64_t>(LowRankStep::product) ? 4 : 2) * dim(key, 0) +
                     dim(key, 2) + dim(key, 3));
    // Factors are in fp32. Those that a step does not compute cost nothing there, so this is the mean over steps.
    case OpKind::curvature:
      return (size * dim(key, 0) * dim(key, 1) + 8 * dim(key, 0) * dim(key, 0)) / dim(key, 2);
    case OpKind::inverse:  // reads the sum and the average, writes the average and the inverse
      return 16 * dim(key, 0) * dim(key, 0) / dim(key, 1);
    case OpKind::precondition:  // two products and the division by the length
      return 4 * (dim(key, 0) * dim(key, 0) + dim(key, 1) * dim(key, 1) + 7 * dim(key, 0) * dim(key, 1));
    case OpKind::task:
    case OpKind::transfer:
      return 0;
  }
  return 0;
}

}  // namespace weft
