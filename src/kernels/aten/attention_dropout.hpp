// Dropout of the softmax, block by block. Backward draws it again, or reads it where the softmax is kept.
#pragma once

#include "kernels/aten/attention_blocks.hpp"
#include "kernels/dropout_hash.hpp"

namespace weft::aten {

inline RowDropout row_dropout(const AttentionShape& shape, Head head, std::int64_t query) {
  const AttentionDropout& d = shape.dropout;
  const std::int64_t sample = d.samples[head.sequence];
  const std::int64_t row =
      (sample * d.heads + d.first_head + head.query_head) * d.length + shape.first_position + query;
  return RowDropout(DropoutRule(d.rate, d.key), row);
}

inline Matrix saved_rows(const AttentionShape& shape, const Matrix& saved, Head head, QueryBlock block) {
  const std::int64_t first = softmax_row(shape, head, block);
  return saved.row_slice(first, first + block.size()).column_slice(0, block.seen);
}

inline void scale_rows(const Matrix& x, const Matrix& factors) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    float* values = row(x, r);
    const float* by = row(factors, r);
    for (std::int64_t c = 0; c < x.columns; ++c) values[c] *= by[c];
  }
}

// The softmax of a block dropped out: in place, or where it is kept beside the softmax.
inline Matrix drop_out(const AttentionShape& shape, const AttentionSaved& saved, Head head, QueryBlock block,
                       const Matrix& softmax) {
  const bool keeps = !saved.softmax.empty();
  const Matrix result = keeps ? saved_rows(shape, saved.dropped, head, block) : softmax;
  for (std::int64_t i = 0; i < block.size(); ++i) {
    const RowDropout drops = row_dropout(shape, head, block.begin + i);
    const float* in = row(softmax, i);
    float* out = row(result, i);
    if (keeps) {
      std::uint8_t* kept = saved.kept.data() + (softmax_row(shape, head, block) + i) * shape.keys;
      for (std::int64_t c = 0; c < block.seen; ++c) kept[c] = drops.keeps(c) ? 1 : 0;
      std::fill(kept + block.seen, kept + shape.keys, std::uint8_t{0});
      for (std::int64_t c = 0; c < block.seen; ++c) out[c] = kept[c] != 0 ? in[c] * drops.scale() : 0.0F;
      std::fill(out + block.seen, out + shape.keys, 0.0F);
    } else {
      for (std::int64_t c = 0; c < block.seen; ++c) out[c] = in[c] * drops.factor(c);
    }
  }
  return result;
}

// What every element of a block was multiplied by.
inline Matrix dropout_factors(const AttentionShape& shape, const AttentionSaved& saved, Head head, QueryBlock block) {
  const Matrix factors = scratch_matrix(kFactors, block.size(), block.seen);
  for (std::int64_t i = 0; i < block.size(); ++i) {
    const RowDropout drops = row_dropout(shape, head, block.begin + i);
    float* out = row(factors, i);
    if (saved.softmax.empty()) {
      for (std::int64_t c = 0; c < block.seen; ++c) out[c] = drops.factor(c);
    } else {
      const std::uint8_t* kept = saved.kept.data() + (softmax_row(shape, head, block) + i) * shape.keys;
      for (std::int64_t c = 0; c < block.seen; ++c) out[c] = kept[c] != 0 ? drops.scale() : 0.0F;
    }
  }
  return factors;
}

inline Matrix dropped_again(const AttentionShape& shape, const AttentionSaved& saved, Head head, QueryBlock block,
                            const Matrix& softmax, const Matrix& factors) {
  if (!saved.softmax.empty()) return saved_rows(shape, saved.dropped, head, block);
  const Matrix result = scratch_matrix(kDropped, block.size(), block.seen);
  copy_rows(softmax, result);
  scale_rows(result, factors);
  return result;
}

}  // namespace weft::aten
