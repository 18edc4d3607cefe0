// Causal attention, a block of queries of one head after another. A block multiplies with the keys that its last query
// sees and no more, so of long sequences only half the square is computed.
#include <algorithm>
#include <cmath>

#include "kernels/aten/kernels_aten.hpp"
#include "kernels/aten/loops.hpp"
#include "kernels/aten/products.hpp"
#include "kernels/aten/rotary.hpp"
#include "kernels/aten/vector_math.hpp"

namespace weft::aten {
namespace {

constexpr std::int64_t kBlock = 64;  // queries; with 32, products of small matrices cost what the mask saves

enum Slot : int { kQueries = 1, kKeys, kScores, kGradients, kKeyGradients };
Matrix scratch_matrix(Slot slot, std::int64_t rows, std::int64_t columns) {
  return Matrix::dense(scratch(slot, rows * columns).data(), rows, columns);
}

// Where one head of one sequence stands in the rows and columns.
struct Head {
  std::int64_t sequence = 0, query_head = 0, kv_head = 0;
};

struct QueryBlock {
  std::int64_t begin = 0, end = 0;
  std::int64_t seen = 0;  // keys that its last query sees
  std::int64_t size() const { return end - begin; }
};

std::int64_t keys_seen(const AttentionShape& shape, std::int64_t query) {
  return std::min(shape.keys, shape.first_position + query + 1);
}

std::int64_t block_count(const AttentionShape& shape) {
  return (shape.queries + kBlock - 1) / kBlock;
}
QueryBlock block_at(const AttentionShape& shape, std::int64_t index) {
  const std::int64_t end = std::min(shape.queries, (index + 1) * kBlock);
  return {index * kBlock, end, keys_seen(shape, end - 1)};
}

Matrix queries_of(const AttentionShape& shape, const Matrix& x, Head head, QueryBlock block) {
  const std::int64_t first = head.sequence * shape.queries, column = head.query_head * shape.head_size;
  return x.row_slice(first + block.begin, first + block.end).column_slice(column, column + shape.head_size);
}
Matrix keys_of(const AttentionShape& shape, const Matrix& x, Head head) {
  const std::int64_t first = head.sequence * shape.keys, column = head.kv_head * shape.head_size;
  return x.row_slice(first, first + shape.keys).column_slice(column, column + shape.head_size);
}
std::int64_t softmax_row(const AttentionShape& shape, Head head, QueryBlock block) {
  return (head.sequence * shape.heads + head.query_head) * shape.queries + block.begin;
}

std::span<const float> angles_of(const AttentionShape& shape) {
  if (shape.rotary_base == 0) return {};
  return rotary_angles(shape.rotary_base, shape.head_size, std::max(shape.keys, shape.first_position + shape.queries));
}
Matrix rotated_keys(std::span<const float> angles, const Matrix& keys) {
  if (angles.empty()) return keys;
  const Matrix rotated = scratch_matrix(kKeys, keys.rows, keys.columns);
  rotate(keys, rotated, angles, 0, Rotation::forward);
  return rotated;
}
Matrix rotated_queries(const AttentionShape& shape, std::span<const float> angles, const Matrix& queries,
                       QueryBlock block) {
  if (angles.empty()) return queries;
  const Matrix rotated = scratch_matrix(kQueries, queries.rows, queries.columns);
  rotate(queries, rotated, angles, shape.first_position + block.begin, Rotation::forward);
  return rotated;
}

// scores = q k^T / sqrt(head size)
void score(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& scores) {
  multiply({q}, {k.row_slice(0, scores.columns), Turned::yes}, scores, Into::overwrite,
           1 / std::sqrt(static_cast<double>(shape.head_size)));
}

// Softmax of a block's rows in place, each over the keys its query sees, zero behind them up to `columns`.
void softmax_rows(const AttentionShape& shape, QueryBlock block, const Matrix& scores, std::int64_t columns,
                  float* log_sums) {
  for (std::int64_t i = 0; i < block.size(); ++i) {
    float* values = row(scores, i);
    const std::int64_t seen = keys_seen(shape, block.begin + i);
    const float highest = largest(values, seen);
    const float sum = exponentiate(values, seen, highest, values);
    const float inverse = 1.0F / sum;
    for (std::int64_t j = 0; j < seen; ++j) values[j] *= inverse;
    std::fill(values + seen, values + columns, 0.0F);
    if (log_sums != nullptr) log_sums[i] = highest + std::log(sum);
  }
}

// The softmax again, from its logarithms of sums.
void softmax_rows_again(const AttentionShape& shape, QueryBlock block, const Matrix& scores, const float* log_sums) {
  for (std::int64_t i = 0; i < block.size(); ++i) {
    float* values = row(scores, i);
    const std::int64_t seen = keys_seen(shape, block.begin + i);
    exponentiate(values, seen, log_sums[i], values);
    std::fill(values + seen, values + block.seen, 0.0F);
  }
}

// d scores = p (dp - sum(p dp)), times the factor that the scores had; in place of dp.
void softmax_grad_rows(const AttentionShape& shape, QueryBlock block, const Matrix& softmax, const Matrix& gradients) {
  const float factor = 1.0F / std::sqrt(static_cast<float>(shape.head_size));
  for (std::int64_t i = 0; i < block.size(); ++i) {
    const float* p = row(softmax, i);
    float* dp = row(gradients, i);
    const std::int64_t seen = keys_seen(shape, block.begin + i);
    float sum = 0;
    for (std::int64_t j = 0; j < seen; ++j) sum += p[j] * dp[j];
    for (std::int64_t j = 0; j < seen; ++j) dp[j] = factor * p[j] * (dp[j] - sum);
    std::fill(dp + seen, dp + block.seen, 0.0F);
  }
}

void add_rows(const Matrix& values, const Matrix& sums) {
  for (std::int64_t r = 0; r < sums.rows; ++r) {
    const float* in = row(values, r);
    float* out = row(sums, r);
    for (std::int64_t c = 0; c < sums.columns; ++c) out[c] += in[c];
  }
}

void clear_rows(const Matrix& x, std::int64_t begin) {
  for (std::int64_t r = begin; r < x.rows; ++r) std::fill_n(row(x, r), x.columns, 0.0F);
}

template <class Body>  // body(head): the heads of one key head follow each other
void for_heads(const AttentionShape& shape, const Body& body) {
  const std::int64_t share = shape.heads / shape.kv_heads;
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence)
    for (std::int64_t head = 0; head < shape.heads; ++head) body(Head{sequence, head, head / share});
}

// What the backward pass of one attention reads and writes.
struct Backward {
  const AttentionShape& shape;
  const Matrix &q, &k, &v;
  const AttentionSaved& saved;
  const Matrix &d_context, &dq;
  std::span<const float> angles;
};

Matrix softmax_again(const Backward& pass, Head head, QueryBlock block, const Matrix& q, const Matrix& k) {
  const std::int64_t first = softmax_row(pass.shape, head, block);
  if (!pass.saved.softmax.empty())
    return pass.saved.softmax.row_slice(first, first + block.size()).column_slice(0, block.seen);
  const Matrix softmax = scratch_matrix(kScores, block.size(), block.seen);
  score(pass.shape, q, k, softmax);
  softmax_rows_again(pass.shape, block, softmax, floats(pass.saved.log_sums) + first);
  return softmax;
}

// Where the blocks of a key head sum up, and what the next of them does with what is there.
struct KeyGradients {
  Matrix dk, dv;
  Into into_dk, into_dv;
};

// dq of a block, and its share of dk and dv. k and dk are rotated where positions are.
void block_backward(const Backward& pass, Head head, QueryBlock block, const Matrix& k, KeyGradients& sums) {
  const AttentionShape& shape = pass.shape;
  const Matrix q = rotated_queries(shape, pass.angles, queries_of(shape, pass.q, head, block), block);
  const Matrix d_context = queries_of(shape, pass.d_context, head, block);
  const Matrix softmax = softmax_again(pass, head, block, q, k);
  multiply({softmax, Turned::yes}, {d_context}, sums.dv.row_slice(0, block.seen), sums.into_dv);
  const Matrix gradients = scratch_matrix(kGradients, block.size(), block.seen);
  multiply({d_context}, {keys_of(shape, pass.v, head).row_slice(0, block.seen), Turned::yes}, gradients,
           Into::overwrite);
  softmax_grad_rows(shape, block, softmax, gradients);
  const Matrix dq = queries_of(shape, pass.dq, head, block);
  multiply({gradients, Turned::yes}, {q}, sums.dk.row_slice(0, block.seen), sums.into_dk);
  sums.into_dk = sums.into_dv = Into::add;
  multiply({gradients}, {k.row_slice(0, block.seen)}, dq, Into::overwrite);
  if (!pass.angles.empty()) rotate(dq, dq, pass.angles, shape.first_position + block.begin, Rotation::back);
}

void finish_rotated(std::span<const float> angles, const Matrix& d_rotated, const Matrix& d_keys, Into into) {
  if (into == Into::overwrite) return rotate(d_rotated, d_keys, angles, 0, Rotation::back);
  rotate(d_rotated, d_rotated, angles, 0, Rotation::back);
  add_rows(d_rotated, d_keys);
}

}  // namespace

void attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& context,
               const AttentionSaved& saved) {
  const std::span<const float> angles = angles_of(shape);
  const bool keeps_softmax = !saved.softmax.empty();
  for_heads(shape, [&](Head head) {
    const Matrix keys = rotated_keys(angles, keys_of(shape, k, head));
    const Matrix values = keys_of(shape, v, head);
    for (std::int64_t index = 0; index < block_count(shape); ++index) {
      const QueryBlock block = block_at(shape, index);
      const Matrix queries = rotated_queries(shape, angles, queries_of(shape, q, head, block), block);
      const std::int64_t first = softmax_row(shape, head, block);
      const Matrix softmax = keeps_softmax
                                 ? saved.softmax.row_slice(first, first + block.size()).column_slice(0, block.seen)
                                 : scratch_matrix(kScores, block.size(), block.seen);
      score(shape, queries, keys, softmax);
      softmax_rows(shape, block, softmax, keeps_softmax ? shape.keys : block.seen,
                   saved.log_sums.empty() ? nullptr : floats(saved.log_sums) + first);
      multiply({softmax}, {values.row_slice(0, block.seen)}, queries_of(shape, context, head, block), Into::overwrite);
    }
  });
}

// The last block sees the most keys: it writes dk and dv, the others add to them. The context is of no use here: the
// sum over p dp is as short.
void attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                          const Matrix& /*context*/, const AttentionSaved& saved, const Matrix& d_context,
                          const Matrix& dq, const Matrix& dk, const Matrix& dv, Into into_keys) {
  const Backward pass{shape, q, k, v, saved, d_context, dq, angles_of(shape)};
  const std::int64_t share = shape.heads / shape.kv_heads, seen = keys_seen(shape, shape.queries - 1);
  const bool rotary = !pass.angles.empty();
  for_heads(shape, [&](Head head) {
    const bool first_of_group = head.query_head % share == 0;
    const bool last_of_group = head.query_head % share == share - 1;
    const Matrix keys = rotated_keys(pass.angles, keys_of(shape, k, head));
    const Matrix d_keys = keys_of(shape, dk, head), d_values = keys_of(shape, dv, head);
    // What is there already is not rotated: rotated gradients are summed apart from it.
    const Matrix d_rotated = rotary ? scratch_matrix(kKeyGradients, seen, shape.head_size) : d_keys;
    KeyGradients sums{d_rotated, d_values, Into::add, Into::add};
    if (first_of_group) {
      sums.into_dk = rotary ? Into::overwrite : into_keys;
      sums.into_dv = into_keys;
    }
    for (std::int64_t index = block_count(shape); index-- > 0;)
      block_backward(pass, head, block_at(shape, index), keys, sums);
    if (last_of_group && rotary) finish_rotated(pass.angles, d_rotated, d_keys.row_slice(0, seen), into_keys);
    if (last_of_group && into_keys == Into::overwrite) {
      clear_rows(d_values, seen);
      clear_rows(d_keys, seen);
    }
  });
}

}  // namespace weft::aten
