// What callers of kernels promise of their operands, checked before a kernel is called.
#pragma once

#include "base/error.hpp"
#include "kernels/arguments.hpp"
#include "kernels/experts.hpp"

namespace weft {

// Kernels of the CPU only take fp32; whoever makes the tensors ensures that.
inline bool is_kernel_type(ElementType type) {
  return type == ElementType::fp32 || type == ElementType::bf16;
}
// Checks the element type, that rows do not overlap, and that they begin at whole elements.
inline bool is_matrix(const Matrix& x) {
  const Bytes element = size_of(x.data.type);
  return x.rows >= 0 && x.columns >= 0 && (x.row_stride >= x.columns * element || x.rows <= 1) &&
         x.row_stride.value % element.value == 0 && (!x.empty() || x.rows * x.columns == 0) &&
         is_kernel_type(x.data.type);
}
inline void check_shape(const Matrix& x, std::int64_t rows, std::int64_t columns) {
  WEFT_CHECK(is_matrix(x));
  WEFT_CHECK(x.rows == rows);
  WEFT_CHECK(x.columns == columns);
}
inline void check_size(const Vector& x, std::int64_t size) {
  WEFT_CHECK(is_kernel_type(x.data.type));
  WEFT_CHECK(x.size == size);
}
inline void check_optional(const Vector& x, std::int64_t size) {
  if (!x.empty()) check_size(x, size);
}

// `encoded` has room for so many tensors like x; of the last one, for the shards that x has.
void check_encoded(const EncodedShards& encoded, std::int64_t tensors, const Vector& x);
// Of fp32 and without gaps between its rows, of which there are no more than columns.
void check_factor(const Matrix& factor, std::int64_t elements, std::int64_t rank);
// All of them are of fp32, without gaps between their rows.
void check_factors(const Matrix& gradient, const Matrix& errors, const Matrix& left, const Matrix& right);
void check_tokens(Tokens tokens, std::int64_t limit);
// Does not check the upper end, because a part of the vocabulary does not know the size of the whole.
void check_tokens_of_parts(Tokens tokens, std::int64_t first);
void check_part(VocabularyPart part, const Matrix& logits);
void check_loss_part(const LossPart& part, std::int64_t tokens);
void check_positions(const LearnedPositions& positions, std::int64_t rows);
void check_attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                     const AttentionSaved& saved, const Matrix& shared_key);
void check_update(std::int64_t step, const GradientClip& clip, const UpdatedParameter& parameter);
void check_gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load);
void check_blocks(const CapacityBlocks& blocks, const Matrix& x, const Matrix& y);
void check_weights(const CapacityBlocks& blocks, const Matrix& x, const Matrix& y, std::span<const Matrix> weights,
                   std::span<const Vector> biases);

}  // namespace weft
