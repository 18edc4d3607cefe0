#include "kernels/checks.hpp"

namespace weft {
namespace {

// Heads of `columns` each, `step` apart, lie within the rows of x.
void check_heads(const Matrix& x, std::int64_t rows, std::int64_t heads, std::int64_t step, std::int64_t columns) {
  WEFT_CHECK(is_matrix(x) && x.rows == rows && step >= columns);
  WEFT_CHECK(x.columns >= (heads - 1) * step + columns);
}

}  // namespace

void check_encoded(const EncodedShards& encoded, std::int64_t tensors, const Vector& x) {
  WEFT_CHECK(encoded.format != CompressionFormat::none && encoded.bytes.data.type == ElementType::u8);
  WEFT_CHECK(tensors >= 1 && encoded.shards >= 1 && encoded.elements >= 0);
  WEFT_CHECK(is_kernel_type(x.data.type) && x.size <= encoded.shards * encoded.elements);
  const std::int64_t room = encoded_bytes(encoded.format, encoded.elements).value;
  const std::int64_t shards_of_last = x.size == 0 ? 0 : (x.size + encoded.elements - 1) / encoded.elements;
  WEFT_CHECK(((tensors - 1) * encoded.shards + shards_of_last) * room <= encoded.bytes.size);
}

namespace {

void check_dense_floats(const Matrix& x, std::int64_t rows, std::int64_t columns) {
  check_shape(x, rows, columns);
  WEFT_CHECK(x.data.type == ElementType::fp32);
  WEFT_CHECK(x.rows <= 1 || x.row_stride == x.columns * size_of(x.data.type));
}

}  // namespace

void check_factor(const Matrix& factor, std::int64_t elements, std::int64_t rank) {
  check_dense_floats(factor, rank, elements);
  WEFT_CHECK(rank >= 1 && elements >= rank);
}

void check_factors(const Matrix& gradient, const Matrix& errors, const Matrix& left, const Matrix& right) {
  check_dense_floats(gradient, gradient.rows, gradient.columns);
  check_dense_floats(errors, gradient.rows, gradient.columns);
  check_factor(left, gradient.rows, left.rows);
  check_factor(right, gradient.columns, left.rows);
}

void check_tokens(Tokens tokens, std::int64_t limit) {
  for (const std::int64_t token : tokens) WEFT_CHECK(token >= 0 && token < limit);
}
void check_tokens_of_parts(Tokens tokens, std::int64_t first) {
  WEFT_CHECK(first >= 0);
  for (const std::int64_t token : tokens) WEFT_CHECK(token >= 0);
}
void check_part(VocabularyPart part, const Matrix& logits) {
  WEFT_CHECK(part.first >= 0 && part.count >= 0 && part.count <= logits.columns);
}
void check_loss_part(const LossPart& part, std::int64_t tokens) {
  check_size(part.largest, tokens);
  check_size(part.sum, tokens);
  check_size(part.target, tokens);
}
void check_positions(const LearnedPositions& positions, std::int64_t rows) {
  WEFT_CHECK(is_matrix(positions.table));
  WEFT_CHECK(!positions.positions.empty() && rows % std::ssize(positions.positions) == 0);
  for (const std::int64_t position : positions.positions) WEFT_CHECK(position >= 0 && position < positions.table.rows);
}

void check_attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                     const AttentionSaved& saved, const Matrix& shared_key) {
  WEFT_CHECK(shape.sequences >= 0 && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
  WEFT_CHECK(shape.head_size > 0 && shape.queries > 0 && shape.keys > 0 && shape.first_position >= 0);
  const std::int64_t rotated = shared_key.empty() ? shape.head_size : shared_key.columns;
  WEFT_CHECK(shape.rotary_base == 0 || (shape.rotary_base > 0 && rotated % 2 == 0));
  check_shape(q, shape.sequences * shape.queries, shape.heads * shape.head_size);
  const std::int64_t key_rows = shape.sequences * shape.keys;
  const std::int64_t own = shared_key.empty() ? shape.head_size : shape.head_size - shared_key.columns;
  WEFT_CHECK(own >= 0);
  check_heads(k, key_rows, shape.kv_heads, shape.key_step(own), own);
  check_heads(v, key_rows, shape.kv_heads, shape.value_step(), shape.value_columns());
  if (!shared_key.empty()) check_shape(shared_key, key_rows, shared_key.columns);
  const std::int64_t softmax_rows = shape.sequences * shape.heads * shape.queries;
  WEFT_CHECK(!saved.log_sums.empty() || !saved.softmax.empty());
  check_optional(saved.log_sums, softmax_rows);
  if (!saved.softmax.empty()) check_shape(saved.softmax, softmax_rows, shape.keys);
  const AttentionDropout& dropout = shape.dropout;
  if (dropout.rate == 0) return;
  WEFT_CHECK(dropout.rate > 0 && dropout.rate < 1 && std::ssize(dropout.samples) == shape.sequences);
  WEFT_CHECK(dropout.first_head >= 0 && dropout.first_head + shape.heads <= dropout.heads);
  WEFT_CHECK(dropout.length >= shape.first_position + shape.queries);
  if (saved.softmax.empty()) return;
  WEFT_CHECK(std::ssize(saved.kept) == softmax_rows * shape.keys);
  check_shape(saved.dropped, softmax_rows, shape.keys);
}

void check_gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load) {
  WEFT_CHECK(shape.experts > 0 && shape.top_k > 0 && shape.top_k <= shape.experts);
  WEFT_CHECK(shape.capacity > 0 && shape.slots() <= kMaxSlots && shape.capacity_of_calls >= 0);
  check_shape(scores, routing.rows, shape.experts);
  check_shape(routing, scores.rows, 2 * shape.top_k);
  check_size(load.choices, shape.experts);
  check_size(load.probabilities, shape.experts);
}

void check_blocks(const CapacityBlocks& blocks, const Matrix& x, const Matrix& y) {
  WEFT_CHECK(blocks.sources > 0 && blocks.experts > 0 && blocks.capacity >= 0);
  check_shape(x, blocks.rows(), x.columns);
  check_shape(y, blocks.rows(), y.columns);
  WEFT_CHECK(blocks.used.empty() || std::ssize(blocks.used) == blocks.sources * blocks.experts);
  for (const ElementRange& used : blocks.used) {
    WEFT_CHECK(used.empty() || (used.begin >= 0 && used.end <= blocks.capacity));
  }
}

void check_weights(const CapacityBlocks& blocks, const Matrix& x, const Matrix& y, std::span<const Matrix> weights,
                   std::span<const Vector> biases) {
  WEFT_CHECK(std::ssize(weights) == blocks.experts);
  for (const Matrix& weight : weights) check_shape(weight, y.columns, x.columns);
  WEFT_CHECK(biases.empty() || std::ssize(biases) == blocks.experts);
  for (const Vector& bias : biases) check_size(bias, y.columns);
}

void check_update(std::int64_t step, const GradientClip& clip, const UpdatedParameter& parameter) {
  WEFT_CHECK(step >= 1);
  check_optional(clip.square_sum, 1);
  check_size(parameter.gradient, parameter.weights.size);
  check_optional(parameter.master, parameter.weights.size);
}

}  // namespace weft
