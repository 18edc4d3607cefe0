// Causal attention: by fused kernels where the shape allows it; otherwise all scores of a sequence at once, by products
// and a softmax of our own, which is correct for every shape.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/fast_attention.hpp"

namespace weft::cuda {
namespace {

Matrix scratch_matrix(Context& context, Scratch purpose, ElementType type, std::int64_t rows, std::int64_t columns) {
  return Matrix::dense({context.scratch<std::byte>(purpose, rows * columns * size_of(type).value), type}, rows,
                       columns);
}

std::int64_t seen_keys(const AttentionShape& shape) {
  return std::min(shape.keys, shape.first_position + shape.queries);
}

Matrix rows_of(const Heads& heads, std::int64_t head, std::int64_t first_row, std::int64_t rows) {
  return heads.matrix.row_slice(first_row, first_row + rows)
      .column_slice(head * heads.step, head * heads.step + heads.columns);
}

// Products of the heads of one sequence, all in one call where each has a key head of its own.
class SequencePass {
 public:
  SequencePass(Context& context, Products& products, const AttentionOperands& operands,
               const HostValue<DropoutRule>& rule, std::int64_t sequence)
      : context_(context), products_(products), operands_(operands), shape_(operands.shape), sequence_(sequence) {
    width_ = (seen_keys(shape_) + 7) / 8 * 8;
    rows_.heads = shape_.heads;
    rows_.queries = shape_.queries;
    rows_.keys = shape_.keys;
    rows_.first_position = shape_.first_position;
    rows_.scale = 1 / std::sqrt(static_cast<float>(shape_.head_size));
    const AttentionDropout& dropout = shape_.dropout;
    if (dropout.rate == 0) return;
    rows_.dropout = rule;
    rows_.dropout_rows = dropout.length;
    const std::int64_t sample = dropout.samples[static_cast<std::size_t>(sequence)];
    rows_.first_dropout_row = (sample * dropout.heads + dropout.first_head) * dropout.length + shape_.first_position;
  }

  void forward() {
    const Matrix scores = score(), used = scratch(Scratch::softmax, type());
    softmax_forward(context_, rows_, scores, used, saved());
    for_heads([&](std::int64_t head, std::int64_t count) {
      products_.multiply({.a = {square(used, head)},
                          .b = {values(head)},
                          .out = rows_of(operands_.context, head, first_query(), shape_.queries),
                          .batch = {count, shape_.queries * width_, operands_.v.step, operands_.context.step}});
    });
  }

  void backward(const AttentionGradients& gradients) {
    const Matrix scores = operands_.saved.softmax.empty() ? score() : Matrix{};
    const Matrix d_used = scratch(Scratch::gradients, ElementType::fp32);
    for_heads([&](std::int64_t head, std::int64_t count) {
      products_.multiply({.a = {rows_of(gradients.d_context, head, first_query(), shape_.queries)},
                          .b = {values(head), Turned::yes},
                          .out = square(d_used, head),
                          .batch = {count, gradients.d_context.step, operands_.v.step, shape_.queries * width_}});
    });
    const Matrix used = scratch(Scratch::softmax, type()), d_scores = scratch(Scratch::d_scores, type());
    softmax_backward(context_, rows_, scores, d_used, saved(), used, d_scores);
    for_heads([&](std::int64_t head, std::int64_t count) {
      const bool is_first = head % share() == 0;
      const std::int64_t kv_head = head / share(), square_step = shape_.queries * width_;
      products_.multiply({.a = {square(used, head), Turned::yes},
                          .b = {rows_of(gradients.d_context, head, first_query(), shape_.queries)},
                          .out = rows_of(gradients.dv, kv_head, first_key(), seen_keys(shape_)),
                          .into = is_first ? gradients.into_dv : Into::add,
                          .batch = {count, square_step, gradients.d_context.step, gradients.dv.step}});
      products_.multiply({.a = {square(d_scores, head), Turned::yes},
                          .b = {rows_of(operands_.q, head, first_query(), shape_.queries)},
                          .out = rows_of(gradients.dk, kv_head, first_key(), seen_keys(shape_)),
                          .into = is_first ? gradients.into_dk : Into::add,
                          .batch = {count, square_step, operands_.q.step, gradients.dk.step}});
      products_.multiply({.a = {square(d_scores, head)},
                          .b = {keys(head)},
                          .out = rows_of(gradients.dq, head, first_query(), shape_.queries),
                          .batch = {count, square_step, operands_.k.step, gradients.dq.step}});
    });
  }

 private:
  ElementType type() const { return operands_.q.matrix.data.type; }
  std::int64_t share() const { return shape_.heads / shape_.kv_heads; }
  std::int64_t first_query() const { return sequence_ * shape_.queries; }
  std::int64_t first_key() const { return sequence_ * shape_.keys; }
  Matrix scratch(Scratch purpose, ElementType element) const {
    return scratch_matrix(context_, purpose, element, shape_.heads * shape_.queries, width_);
  }
  // A head's queries by keys that are seen.
  Matrix square(const Matrix& of_heads, std::int64_t head) const {
    return of_heads.row_slice(head * shape_.queries, (head + 1) * shape_.queries).column_slice(0, seen_keys(shape_));
  }
  Matrix keys(std::int64_t head) const { return rows_of(operands_.k, head / share(), first_key(), seen_keys(shape_)); }
  Matrix values(std::int64_t head) const {
    return rows_of(operands_.v, head / share(), first_key(), seen_keys(shape_));
  }

  // body(first head, count of heads)
  template <class Body>
  void for_heads(const Body& body) const {
    if (share() == 1) {
      body(0, shape_.heads);
      return;
    }
    for (std::int64_t head = 0; head < shape_.heads; ++head) body(head, 1);
  }

  Matrix score() {
    const Matrix scores = scratch(Scratch::scores, ElementType::fp32);
    for_heads([&](std::int64_t head, std::int64_t count) {
      products_.multiply({.a = {rows_of(operands_.q, head, first_query(), shape_.queries)},
                          .b = {keys(head), Turned::yes},
                          .out = square(scores, head),
                          .scale = 1 / std::sqrt(static_cast<double>(shape_.head_size)),
                          .batch = {count, operands_.q.step, operands_.k.step, shape_.queries * width_}});
    });
    return scores;
  }

  SoftmaxSaved saved() const {
    const AttentionSaved& all = operands_.saved;
    const std::int64_t first = sequence_ * shape_.heads * shape_.queries, count = shape_.heads * shape_.queries;
    SoftmaxSaved of_sequence;
    if (!all.log_sums.empty())
      of_sequence.log_sums = reinterpret_cast<float*>(all.log_sums.slice(first, first + count).data.address);
    if (!all.softmax.empty()) of_sequence.softmax = all.softmax.row_slice(first, first + count);
    if (!all.dropped.empty()) of_sequence.dropped = all.dropped.row_slice(first, first + count);
    if (!all.kept.empty()) of_sequence.kept = all.kept.data() + first * shape_.keys;
    return of_sequence;
  }

  Context& context_;
  Products& products_;
  const AttentionOperands& operands_;
  const AttentionShape& shape_;
  std::int64_t sequence_, width_ = 0;
  SoftmaxRows rows_;
};

// Queries and keys with their positions: rotated, or with the key that all heads share behind each head's own columns,
// which alone are rotated then.
class Positioned {
 public:
  Positioned(Context& context, AngleTable& table, const AttentionShape& shape, const Matrix& shared_key)
      : context_(context), shape_(shape), shared_(shared_key) {
    if (shape.rotary_base == 0) return;
    angles_ = table.angles(context, shape.rotary_base, shape.head_size - own(),
                           std::max(shape.keys, shape.first_position + shape.queries));
  }

  bool changes_queries() const { return angles_ != nullptr; }
  bool changes_keys() const { return angles_ != nullptr || !shared_.empty(); }

  Heads queries(const Matrix& q) const {
    const Heads given{q, shape_.heads, shape_.head_size, shape_.head_size};
    if (!changes_queries()) return given;
    const Heads result = dense(Scratch::queries, q.data.type, q.rows, shape_.heads);
    rotate_heads(context_, given.part(0, own()), result.part(0, own()), {}, Into::overwrite);
    rotate_heads(context_, tail(given), tail(result), of_queries(false), Into::overwrite);
    return result;
  }
  void queries_back(const Heads& dq) const {
    if (changes_queries()) rotate_heads(context_, tail(dq), tail(dq), of_queries(true), Into::overwrite);
  }

  // What a head has for itself.
  Heads own_keys(const Matrix& k) const {
    const std::int64_t columns = shared_.empty() ? shape_.head_size : own();
    return {k, shape_.kv_heads, shape_.key_step(columns), columns};
  }
  Heads keys(const Matrix& k) const {
    const Heads given = own_keys(k);
    if (!changes_keys()) return given;
    const Heads result = dense(Scratch::keys, k.data.type, k.rows, shape_.kv_heads);
    rotate_heads(context_, given.part(0, own()), result.part(0, own()), {}, Into::overwrite);
    rotate_heads(context_, shared_.empty() ? given : of_shared(shared_), tail(result), of_keys(false), Into::overwrite);
    return result;
  }
  Heads key_gradients(const Matrix& dk) const {
    return changes_keys() ? dense(Scratch::d_keys, dk.data.type, dk.rows, shape_.kv_heads) : own_keys(dk);
  }
  // Gradients of keys as scores see them, back to where these came from.
  void keys_back(const Heads& d_positioned, const Matrix& dk, const Matrix& d_shared, Into into) const {
    if (!changes_keys()) return;
    const Heads d_own = own_keys(dk);
    rotate_heads(context_, d_positioned.part(0, own()), d_own.part(0, own()), {}, into);
    if (shared_.empty()) {
      rotate_heads(context_, d_positioned, d_own, of_keys(true), into);
      return;
    }
    rotate_heads(context_, tail(d_positioned), tail(d_positioned), of_keys(true), Into::overwrite);
    sum_heads(context_, tail(d_positioned), d_shared, into);
  }

 private:
  std::int64_t own() const { return shared_.empty() ? 0 : shape_.head_size - shared_.columns; }
  Heads tail(const Heads& heads) const { return heads.part(own(), shape_.head_size); }
  Heads of_shared(const Matrix& x) const { return {x, shape_.kv_heads, 0, x.columns}; }
  Heads dense(Scratch purpose, ElementType type, std::int64_t rows, std::int64_t heads) const {
    return {scratch_matrix(context_, purpose, type, rows, heads * shape_.head_size), heads, shape_.head_size,
            shape_.head_size};
  }
  Rotation of_queries(bool back) const { return {angles_, shape_.queries, shape_.first_position, back}; }
  Rotation of_keys(bool back) const { return {angles_, shape_.keys, 0, back}; }

  Context& context_;
  const AttentionShape& shape_;
  const Matrix& shared_;
  const float* angles_ = nullptr;
};

HostValue<DropoutRule> dropout_rule(Context& context, const AttentionShape& shape) {
  if (shape.dropout.rate == 0) return {};
  return context.host_value(DropoutRule(shape.dropout.rate, shape.dropout.key));
}

// Keys that no query sees have no gradient.
void clear_unseen(Context& context, const AttentionShape& shape, const Heads& gradients) {
  const std::int64_t seen = seen_keys(shape);
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence)
    for (std::int64_t head = 0; head < gradients.count; ++head)
      context.clear(rows_of(gradients, head, sequence * shape.keys + seen, shape.keys - seen));
}

}  // namespace

const float* AngleTable::angles(Context& context, double base, std::int64_t columns, std::int64_t positions) {
  if (base != base_ || columns != columns_ || positions > positions_) {
    check(cudaDeviceSynchronize(), "waiting for the GPU");  // other streams may still read the old ones
    values_ = DeviceMemory(positions * columns * static_cast<std::int64_t>(sizeof(float)));
    base_ = base;
    columns_ = columns;
    positions_ = positions;
    compute_angles(context, base, columns, positions, reinterpret_cast<float*>(values_.data()));
    check(cudaDeviceSynchronize(), "waiting for the GPU");  // other streams may be the next to read them
  }
  return reinterpret_cast<const float*>(values_.data());
}

void CudaKernels::attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                            const Matrix& context, const AttentionSaved& saved, const Matrix& shared_key) {
  if (shape.sequences == 0) return;
  const HostValue<DropoutRule> rule = dropout_rule(context_, shape);
  if (context_.only_takes_data()) return;
  const Positioned positioned(context_, angles_, shape, shared_key);
  const AttentionOperands operands{shape,
                                   positioned.queries(q),
                                   positioned.keys(k),
                                   {v, shape.kv_heads, shape.value_step(), shape.value_columns()},
                                   {context, shape.heads, shape.value_columns(), shape.value_columns()},
                                   saved};
  if (fast_attention_ != nullptr && fast_attention_->forward(*this, context_.current_stream(), operands)) return;
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence)
    SequencePass(context_, products_, operands, rule, sequence).forward();
}

void CudaKernels::attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                                       const Matrix& context, const AttentionSaved& saved, const Matrix& d_context,
                                       const Matrix& dq, const Matrix& dk, const Matrix& dv, Into into_keys,
                                       const Matrix& shared_key, const Matrix& d_shared_key) {
  if (shape.sequences == 0) return;
  const HostValue<DropoutRule> rule = dropout_rule(context_, shape);
  if (context_.only_takes_data()) return;
  const Positioned positioned(context_, angles_, shape, shared_key);
  const std::int64_t columns = shape.value_columns();
  const AttentionOperands operands{shape,
                                   positioned.queries(q),
                                   positioned.keys(k),
                                   {v, shape.kv_heads, shape.value_step(), columns},
                                   {context, shape.heads, columns, columns},
                                   saved};
  const AttentionGradients gradients{{d_context, shape.heads, columns, columns},
                                     {dq, shape.heads, shape.head_size, shape.head_size},
                                     positioned.key_gradients(dk),
                                     {dv, shape.kv_heads, shape.value_step(), columns},
                                     positioned.changes_keys() ? Into::overwrite : into_keys,
                                     into_keys};
  if (gradients.into_dk == Into::overwrite) clear_unseen(context_, shape, gradients.dk);
  if (gradients.into_dv == Into::overwrite) clear_unseen(context_, shape, gradients.dv);
  if (fast_attention_ == nullptr || !fast_attention_->backward(*this, context_.current_stream(), operands, gradients))
    for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence)
      SequencePass(context_, products_, operands, rule, sequence).backward(gradients);
  positioned.queries_back(gradients.dq);
  positioned.keys_back(gradients.dk, dk, d_shared_key, into_keys);
}

}  // namespace weft::cuda
