// Checks what the caller promised, then calls the module's kernel with the caller's number of threads.
#include "kernels/kernels.hpp"

#include <atomic>

#include "kernels/checks.hpp"
#include "kernels/kernel_module.hpp"

namespace weft {
namespace {

std::atomic<int>& wanted_threads() {
  static std::atomic<int> threads{1};
  return threads;
}

const KernelModule& loaded_module() {
  const KernelModule& module = kernel_module();
  if (module.table == nullptr) fail("{}", module.problem);
  return module;
}

void check_tokens(Tokens tokens, std::int64_t limit) {
  for (const std::int64_t token : tokens) WEFT_CHECK(token >= 0 && token < limit);
}
// How far the vocabulary goes, a part of it does not know.
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

// Heads of `columns` each, `step` apart, lie within the rows of x.
void check_heads(const Matrix& x, std::int64_t rows, std::int64_t heads, std::int64_t step, std::int64_t columns) {
  WEFT_CHECK(is_matrix(x) && x.rows == rows && step >= columns);
  WEFT_CHECK(x.columns >= (heads - 1) * step + columns);
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

}  // namespace

// OpenMP keeps its number of threads per calling thread, so each sets it when it comes by.
const KernelTable& loaded_kernels() {
  const KernelTable& table = *loaded_module().table;
  thread_local int used = 0;
  if (const int wanted = wanted_threads(); used != wanted) {
    table.use_threads(wanted);
    used = wanted;
  }
  return table;
}

bool kernels_available() {
  return kernel_module().table != nullptr;
}

std::string kernels_in_words() {
  const KernelModule& module = kernel_module();
  return module.table != nullptr ? module.table->in_words : module.problem;
}

void set_kernel_threads(int threads) {
  WEFT_CHECK(threads > 0);
  wanted_threads() = threads;
  if (const KernelModule& module = loaded_module(); module.set_blas_threads != nullptr)
    module.set_blas_threads(threads);
}

void linear(const Matrix& x, const Matrix& w, const Vector& bias, const Matrix& y, Into into) {
  check_shape(x, y.rows, w.columns);
  check_shape(w, y.columns, x.columns);
  check_shape(y, x.rows, w.rows);
  check_optional(bias, w.rows);
  loaded_kernels().linear(x, w, bias, y, into);
}

void linear_input_grad(const Matrix& dy, const Matrix& w, const Matrix& dx, Into into) {
  check_shape(dy, dx.rows, w.rows);
  check_shape(w, dy.columns, dx.columns);
  check_shape(dx, dy.rows, w.columns);
  loaded_kernels().linear_input_grad(dy, w, dx, into);
}

void linear_weight_grad(const Matrix& x, const Matrix& dy, const Matrix& dw, const Vector& dbias, Into into) {
  check_shape(x, dy.rows, dw.columns);
  check_shape(dy, x.rows, dw.rows);
  check_shape(dw, dy.columns, x.columns);
  check_optional(dbias, dw.rows);
  loaded_kernels().linear_weight_grad(x, dy, dw, dbias, into);
}

void norm(const Matrix& x, const NormWeights& weights, const Matrix& y) {
  check_shape(x, y.rows, weights.gain.size);
  check_shape(y, x.rows, weights.gain.size);
  check_optional(weights.bias, weights.gain.size);
  loaded_kernels().norm(x, weights, y);
}

void norm_input_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Matrix& residual,
                     const Matrix& dx) {
  check_shape(dy, x.rows, weights.gain.size);
  check_shape(x, x.rows, weights.gain.size);
  check_shape(dx, x.rows, weights.gain.size);
  if (!residual.empty()) check_shape(residual, x.rows, weights.gain.size);
  loaded_kernels().norm_input_grad(dy, x, weights, residual, dx);
}

void norm_weight_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Vector& dgain,
                      const Vector& dbias, Into into) {
  check_shape(dy, x.rows, dgain.size);
  check_shape(x, dy.rows, dgain.size);
  check_optional(dbias, dgain.size);
  WEFT_CHECK(dbias.empty() == weights.bias.empty());
  loaded_kernels().norm_weight_grad(dy, x, weights, dgain, dbias, into);
}

void dropout(const Matrix& x, const DropoutDraw& draw, const Matrix& residual, KeptElements kept, const Matrix& y) {
  check_shape(x, y.rows, y.columns);
  check_shape(y, x.rows, x.columns);
  if (!residual.empty()) check_shape(residual, x.rows, x.columns);
  WEFT_CHECK(draw.rate >= 0 && draw.rate < 1);
  WEFT_CHECK(std::ssize(draw.rows) == x.rows && std::ssize(kept) == x.rows * x.columns);
  loaded_kernels().dropout(x, draw, residual, kept, y);
}

void dropout_input_grad(const Matrix& dy, double rate, KeptElements kept, const Matrix& dx) {
  check_shape(dy, dx.rows, dx.columns);
  check_shape(dx, dy.rows, dy.columns);
  WEFT_CHECK(rate >= 0 && rate < 1 && std::ssize(kept) == dy.rows * dy.columns);
  loaded_kernels().dropout_input_grad(dy, rate, kept, dx);
}

void attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& context,
               const AttentionSaved& saved, const Matrix& shared_key) {
  check_attention(shape, q, k, v, saved, shared_key);
  check_shape(context, q.rows, shape.heads * shape.value_columns());
  loaded_kernels().attention(shape, q, k, v, context, saved, shared_key);
}

void attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                          const Matrix& context, const AttentionSaved& saved, const Matrix& d_context, const Matrix& dq,
                          const Matrix& dk, const Matrix& dv, Into into_keys, const Matrix& shared_key,
                          const Matrix& d_shared_key) {
  check_attention(shape, q, k, v, saved, shared_key);
  check_shape(d_context, q.rows, shape.heads * shape.value_columns());
  check_shape(dq, q.rows, q.columns);
  check_shape(dk, k.rows, k.columns);
  check_shape(dv, v.rows, v.columns);
  if (!shared_key.empty()) check_shape(d_shared_key, k.rows, shared_key.columns);
  loaded_kernels().attention_input_grad(shape, q, k, v, context, saved, d_context, dq, dk, dv, into_keys, shared_key,
                                        d_shared_key);
}

void gelu(const Matrix& x, const Matrix& y) {
  check_shape(x, y.rows, y.columns);
  check_shape(y, x.rows, x.columns);
  loaded_kernels().gelu(x, y);
}

void gelu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) {
  check_shape(dy, x.rows, x.columns);
  check_shape(x, x.rows, x.columns);
  check_shape(dx, x.rows, x.columns);
  loaded_kernels().gelu_input_grad(dy, x, dx);
}

void swiglu(const Matrix& x, const Matrix& y) {
  check_shape(x, y.rows, 2 * y.columns);
  check_shape(y, x.rows, y.columns);
  loaded_kernels().swiglu(x, y);
}

void swiglu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) {
  check_shape(dy, x.rows, dy.columns);
  check_shape(x, dy.rows, 2 * dy.columns);
  check_shape(dx, x.rows, x.columns);
  loaded_kernels().swiglu_input_grad(dy, x, dx);
}

void add(const Matrix& a, const Matrix& b, const Matrix& sum) {
  check_shape(a, sum.rows, sum.columns);
  check_shape(b, sum.rows, sum.columns);
  check_shape(sum, a.rows, a.columns);
  loaded_kernels().add(a, b, sum);
}

void embedding(Tokens tokens, const Matrix& table, std::int64_t first_token, const LearnedPositions& positions,
               const Matrix& y) {
  check_tokens_of_parts(tokens, first_token);
  check_shape(table, table.rows, y.columns);
  check_shape(y, std::ssize(tokens), table.columns);
  if (!positions.table.empty()) {
    check_positions(positions, y.rows);
    WEFT_CHECK(positions.table.columns == y.columns);
  }
  loaded_kernels().embedding(tokens, table, first_token, positions, y);
}

void embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first_token, Into into) {
  check_tokens_of_parts(tokens, first_token);
  check_shape(dtable, dtable.rows, dy.columns);
  check_shape(dy, std::ssize(tokens), dtable.columns);
  loaded_kernels().embedding_weight_grad(tokens, dy, dtable, first_token, into);
}

void positions_weight_grad(const Matrix& dy, const LearnedPositions& d_positions, Into into) {
  check_positions(d_positions, dy.rows);
  check_shape(dy, dy.rows, d_positions.table.columns);
  loaded_kernels().positions_weight_grad(dy, d_positions, into);
}

double cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities) {
  WEFT_CHECK(vocab > 0 && vocab <= logits.columns);
  check_tokens(targets, vocab);
  check_shape(logits, std::ssize(targets), probabilities.columns);
  check_shape(probabilities, logits.rows, logits.columns);
  return loaded_kernels().cross_entropy(logits, targets, vocab, probabilities);
}

void cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out) {
  check_part(part, logits);
  check_tokens_of_parts(targets, part.first);
  check_shape(logits, std::ssize(targets), logits.columns);
  check_loss_part(out, logits.rows);
  loaded_kernels().cross_entropy_part(logits, targets, part, out);
}

double cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                              const Matrix& probabilities) {
  check_part(part, logits);
  WEFT_CHECK(!parts.empty());
  for (const LossPart& one : parts) check_loss_part(one, logits.rows);
  check_shape(logits, probabilities.rows, probabilities.columns);
  check_shape(probabilities, logits.rows, logits.columns);
  return loaded_kernels().cross_entropy_of_parts(logits, part, parts, probabilities);
}

void cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first, double scale,
                              const Matrix& d_logits) {
  check_tokens_of_parts(targets, first);
  check_shape(probabilities, std::ssize(targets), d_logits.columns);
  check_shape(d_logits, probabilities.rows, probabilities.columns);
  loaded_kernels().cross_entropy_input_grad(probabilities, targets, first, scale, d_logits);
}

bool adam(const AdamSettings& settings, std::int64_t step, double gradient_scale, const Vector& gradient,
          const Vector& weights, const Vector& first_moment, const Vector& second_moment) {
  WEFT_CHECK(step >= 1);
  check_size(gradient, weights.size);
  check_size(first_moment, weights.size);
  check_size(second_moment, weights.size);
  return loaded_kernels().adam(settings, step, gradient_scale, gradient, weights, first_moment, second_moment);
}

bool sgd(const SgdSettings& settings, std::int64_t step, double gradient_scale, const Vector& gradient,
         const Vector& weights, const Vector& momentum) {
  WEFT_CHECK(step >= 1);
  check_size(gradient, weights.size);
  if (settings.momentum != 0) check_size(momentum, weights.size);
  return loaded_kernels().sgd(settings, step, gradient_scale, gradient, weights, momentum);
}

double square_sum(const Vector& x) {
  return loaded_kernels().square_sum(x);
}
void fill(const Vector& x, float value) {
  loaded_kernels().fill(x, value);
}

}  // namespace weft
