// The kernels of attention beside its products: rotation of heads, and the softmax of scores, forward and back.
#pragma once

#include "kernels/cuda/context.hpp"
#include "kernels/dropout_hash.hpp"

namespace weft::cuda {

// Head h of a row is `columns` columns from h * step on; a step of 0: all heads share them.
struct Heads {
  Matrix matrix;
  std::int64_t count = 1, step = 0, columns = 0;

  Heads part(std::int64_t begin, std::int64_t end) const {
    return {matrix.column_slice(begin, matrix.columns), count, step, end - begin};
  }
  bool follow_each_other() const { return step == columns; }
};

// Rotary positions: row r stands at first_position + r % rows_per_sequence, and the halves of a head are the two
// coordinates of as many planes.
struct Rotation {
  const float* angles = nullptr;  // by position: cosines of all planes, then sines; none: heads are only copied
  std::int64_t rows_per_sequence = 1, first_position = 0;
  bool back = false;
};
void compute_angles(Context& context, double base, std::int64_t columns, std::int64_t positions, float* angles);
// `to` may be `from`.
void rotate_heads(Context& context, const Heads& from, const Heads& to, const Rotation& rotation, Into into);
// to = (or +=) the sum of all heads.
void sum_heads(Context& context, const Heads& from, const Matrix& to, Into into);

// The rows of one sequence's scores: heads one after the other, with a row per query.
struct SoftmaxRows {
  std::int64_t heads = 0, queries = 0, keys = 0, first_position = 0;
  float scale = 1;  // of the scores, for their gradient
  HostValue<DropoutRule> dropout;
  std::int64_t first_dropout_row = 0;  // of the first query of the first head
  std::int64_t dropout_rows = 0;       // from one head to the next; 0: nothing is dropped
};
// What a sequence keeps for the backward pass: parts of AttentionSaved.
struct SoftmaxSaved {
  float* log_sums = nullptr;
  Matrix softmax, dropped;
  std::uint8_t* kept = nullptr;
};
// used = the softmax of the scores (f32), dropped out; zero for keys that a query does not see.
void softmax_forward(Context& context, const SoftmaxRows& rows, const Matrix& scores, const Matrix& used,
                     const SoftmaxSaved& saved);
// The softmax again, from the scores or from where it is saved: used as above, and d_scores from d_used (f32).
void softmax_backward(Context& context, const SoftmaxRows& rows, const Matrix& scores, const Matrix& d_used,
                      const SoftmaxSaved& saved, const Matrix& used, const Matrix& d_scores);

}  // namespace weft::cuda
