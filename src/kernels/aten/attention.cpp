// Causal attention, a block of queries of one head after another. A block multiplies with the keys that its last query
// sees and no more, so of long sequences only half the square is computed.
#include <algorithm>
#include <cmath>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/attention_blocks.hpp"
#include "kernels/aten/attention_dropout.hpp"
#include "kernels/aten/loops.hpp"
#include "kernels/aten/products.hpp"
#include "kernels/aten/vector_math.hpp"

namespace weft::aten {
namespace {

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

// What the backward pass of one attention reads and writes.
struct Backward {
  const AttentionShape& shape;
  const Matrix &q, &v;
  const AttentionSaved& saved;
  const Matrix &d_context, &dq;
  Positioned positioned;
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

// Where the blocks of a key head are summed, and whether the next block overwrites or adds.
struct KeyGradients {
  Matrix dk, dv;
  Into into_dk, into_dv;
};

// Computes dq of a block, and its share of dk and dv. k and dk are prepared for scores: rotated where there are rotary
// positions.
void block_backward(const Backward& pass, Head head, QueryBlock block, const Matrix& k, KeyGradients& sums) {
  const AttentionShape& shape = pass.shape;
  const Matrix q = pass.positioned.queries(queries_of(shape, pass.q, head, block), block);
  const Matrix d_context = context_of(shape, pass.d_context, head, block);
  const Matrix softmax = softmax_again(pass, head, block, q, k);
  const bool drops = shape.dropout.rate > 0;
  const Matrix factors = drops ? dropout_factors(shape, pass.saved, head, block) : Matrix{};
  const Matrix used = drops ? dropped_again(shape, pass.saved, head, block, softmax, factors) : softmax;
  multiply({used, Turned::yes}, {d_context}, sums.dv.row_slice(0, block.seen), sums.into_dv);
  const Matrix gradients = scratch_matrix(kGradients, block.size(), block.seen);
  multiply({d_context}, {values_of(shape, pass.v, head).row_slice(0, block.seen), Turned::yes}, gradients,
           Into::overwrite);
  if (drops) scale_rows(gradients, factors);
  softmax_grad_rows(shape, block, softmax, gradients);
  const Matrix dq = queries_of(shape, pass.dq, head, block);
  multiply({gradients, Turned::yes}, {q}, sums.dk.row_slice(0, block.seen), sums.into_dk);
  sums.into_dk = sums.into_dv = Into::add;
  multiply({gradients}, {k.row_slice(0, block.seen)}, dq, Into::overwrite);
  pass.positioned.queries_back(dq, block);
}

}  // namespace

void AtenKernels::attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                            const Matrix& context, const AttentionSaved& saved, const Matrix& shared_key) {
  const Positioned positioned(shape, shared_key);
  const bool keeps_softmax = !saved.softmax.empty();
  for_heads(shape, [&](Head head) {
    const Matrix keys = positioned.keys(k, head), values = values_of(shape, v, head);
    for (std::int64_t index = 0; index < block_count(shape); ++index) {
      const QueryBlock block = block_at(shape, index);
      const Matrix queries = positioned.queries(queries_of(shape, q, head, block), block);
      const std::int64_t first = softmax_row(shape, head, block);
      Matrix softmax = keeps_softmax ? saved.softmax.row_slice(first, first + block.size()).column_slice(0, block.seen)
                                     : scratch_matrix(kScores, block.size(), block.seen);
      score(shape, queries, keys, softmax);
      softmax_rows(shape, block, softmax, keeps_softmax ? shape.keys : block.seen,
                   saved.log_sums.empty() ? nullptr : floats(saved.log_sums) + first);
      if (shape.dropout.rate > 0) softmax = drop_out(shape, saved, head, block, softmax);
      multiply({softmax}, {values.row_slice(0, block.seen)}, context_of(shape, context, head, block), Into::overwrite);
    }
  });
}

// The last block sees the most keys, so it writes dk and dv and the others add to them. The context is not needed: the
// sum over p dp is as short.
void AtenKernels::attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                                       const Matrix& /*context*/, const AttentionSaved& saved, const Matrix& d_context,
                                       const Matrix& dq, const Matrix& dk, const Matrix& dv, Into into_keys,
                                       const Matrix& shared_key, const Matrix& d_shared_key) {
  const Backward pass{shape, q, v, saved, d_context, dq, Positioned(shape, shared_key)};
  const std::int64_t share = shape.heads / shape.kv_heads, seen = keys_seen(shape, shape.queries - 1);
  const bool apart = pass.positioned.changes_keys();
  for_heads(shape, [&](Head head) {
    const bool first_of_group = head.query_head % share == 0;
    const bool last_of_group = head.query_head % share == share - 1;
    const Matrix keys = pass.positioned.keys(k, head);
    const Matrix d_keys = pass.positioned.own_keys(dk, head), d_values = values_of(shape, dv, head);
    // Existing gradients are not rotated, so rotated gradients are summed separately first.
    const Matrix d_positioned = apart ? scratch_matrix(kKeyGradients, seen, shape.head_size) : d_keys;
    KeyGradients sums{d_positioned, d_values, Into::add, Into::add};
    if (first_of_group) {
      sums.into_dk = apart ? Into::overwrite : into_keys;
      sums.into_dv = into_keys;
    }
    for (std::int64_t index = block_count(shape); index-- > 0;)
      block_backward(pass, head, block_at(shape, index), keys, sums);
    if (!last_of_group) return;
    if (into_keys == Into::overwrite) {
      clear_rows(d_values, seen);
      clear_rows(d_keys, seen);
    }
    if (apart) pass.positioned.keys_back(d_positioned, d_keys, d_shared_key, head, into_keys);
  });
}

}  // namespace weft::aten
