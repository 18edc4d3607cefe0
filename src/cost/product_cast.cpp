#include "cost/product_cast.hpp"

namespace weft {
namespace {

// Each operand is needed twice, by rows for one product and by columns for another (on Hopper as a transposed copy).
// fp8 with scales from earlier steps reads a 16-bit element once and writes both; NVFP4 reads it a second time, because
// it needs the largest element of the tensor first.
double bytes_of_cast(ProductFormat format, ElementType stored) {
  const auto read = static_cast<double>(size_of(stored).value);
  const double written = 2 * bytes_per_element(format, stored);
  return format == ProductFormat::fp4 ? 2 * read + written : read + written;
}

// The norm before these products writes rounded rows itself (TE's LayerNormLinear), as long as one pass suffices.
bool follows_a_norm(Role role) {
  return role == Role::qkv || role == Role::kv || role == Role::ffn_in;
}

}  // namespace

CastWork cast_work(const Operation& operation) {
  const OpKey& key = operation.key;
  if (key.kind != OpKind::gemm || key.product == ProductFormat::stored) return {};
  const bool fp4 = key.product == ProductFormat::fp4;
  const auto d = [&](std::size_t i) { return static_cast<double>(key.dims[i]); };
  switch (key.phase) {
    case Phase::forward:
    case Phase::recompute:
      if (follows_a_norm(operation.role) && !fp4) return {};
      break;
    case Phase::input_grad:
      break;
    default:
      return {};  // both operands are there already
  }
  const double elements = d(0) * d(2) * d(3);
  return {elements * bytes_of_cast(key.product, key.dtype), fp4 ? 2 : 1};
}

}  // namespace weft
