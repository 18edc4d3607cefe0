#include "kernels/kernels.hpp"

#include <utility>

#include "compress/low_rank.hpp"
#include "kernels/accelerator_module.hpp"
#include "kernels/checks.hpp"
#include "kernels/encode_on_host.hpp"
#include "kernels/kernel_module.hpp"

namespace weft {
namespace {

// Of a matrix without gaps.
std::span<float> all_floats(const Matrix& x) {
  return floats_of({x.data, x.rows * x.columns});
}

LowRankMatrix low_rank_matrix(const Matrix& x, std::int64_t rank) {
  return {.offset = 0, .rows = x.rows, .columns = x.columns, .rank = rank, .left = 0, .right = 0};
}

// Checks the caller's promises, whatever backend computes.
class CheckedKernels final : public Kernels {
 public:
  explicit CheckedKernels(std::unique_ptr<KernelBackend> backend) : backend_(std::move(backend)) {}

  void synchronize() override { backend().synchronize(); }

  void linear(const Matrix& x, const Matrix& w, const Vector& bias, const Matrix& y, Into into) override {
    check_shape(x, y.rows, w.columns);
    check_shape(w, y.columns, x.columns);
    check_shape(y, x.rows, w.rows);
    check_optional(bias, w.rows);
    backend().linear(x, w, bias, y, into);
  }

  void linear_input_grad(const Matrix& dy, const Matrix& w, const Matrix& dx, Into into) override {
    check_shape(dy, dx.rows, w.rows);
    check_shape(w, dy.columns, dx.columns);
    check_shape(dx, dy.rows, w.columns);
    backend().linear_input_grad(dy, w, dx, into);
  }

  void linear_weight_grad(const Matrix& x, const Matrix& dy, const Matrix& dw, const Vector& dbias,
                          Into into) override {
    check_shape(x, dy.rows, dw.columns);
    check_shape(dy, x.rows, dw.rows);
    check_shape(dw, dy.columns, x.columns);
    check_optional(dbias, dw.rows);
    backend().linear_weight_grad(x, dy, dw, dbias, into);
  }

  void norm(const Matrix& x, const NormWeights& weights, const Matrix& y) override {
    check_shape(x, y.rows, weights.gain.size);
    check_shape(y, x.rows, weights.gain.size);
    check_optional(weights.bias, weights.gain.size);
    backend().norm(x, weights, y);
  }

  void norm_input_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Matrix& residual,
                       const Matrix& dx) override {
    check_shape(dy, x.rows, weights.gain.size);
    check_shape(x, x.rows, weights.gain.size);
    check_shape(dx, x.rows, weights.gain.size);
    if (!residual.empty()) check_shape(residual, x.rows, weights.gain.size);
    backend().norm_input_grad(dy, x, weights, residual, dx);
  }

  void norm_weight_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Vector& dgain,
                        const Vector& dbias, Into into) override {
    check_shape(dy, x.rows, dgain.size);
    check_shape(x, dy.rows, dgain.size);
    check_optional(dbias, dgain.size);
    WEFT_CHECK(dbias.empty() == weights.bias.empty());
    backend().norm_weight_grad(dy, x, weights, dgain, dbias, into);
  }

  void dropout(const Matrix& x, const DropoutDraw& draw, const Matrix& residual, KeptElements kept,
               const Matrix& y) override {
    check_shape(x, y.rows, y.columns);
    check_shape(y, x.rows, x.columns);
    if (!residual.empty()) check_shape(residual, x.rows, x.columns);
    WEFT_CHECK(draw.rate >= 0 && draw.rate < 1);
    WEFT_CHECK(std::ssize(draw.rows) == x.rows && std::ssize(kept) == x.rows * x.columns);
    backend().dropout(x, draw, residual, kept, y);
  }

  void dropout_input_grad(const Matrix& dy, double rate, KeptElements kept, const Matrix& dx) override {
    check_shape(dy, dx.rows, dx.columns);
    check_shape(dx, dy.rows, dy.columns);
    WEFT_CHECK(rate >= 0 && rate < 1 && std::ssize(kept) == dy.rows * dy.columns);
    backend().dropout_input_grad(dy, rate, kept, dx);
  }

  void attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& context,
                 const AttentionSaved& saved, const Matrix& shared_key) override {
    check_attention(shape, q, k, v, saved, shared_key);
    check_shape(context, q.rows, shape.heads * shape.value_columns());
    backend().attention(shape, q, k, v, context, saved, shared_key);
  }

  void attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                            const Matrix& context, const AttentionSaved& saved, const Matrix& d_context,
                            const Matrix& dq, const Matrix& dk, const Matrix& dv, Into into_keys,
                            const Matrix& shared_key, const Matrix& d_shared_key) override {
    check_attention(shape, q, k, v, saved, shared_key);
    check_shape(d_context, q.rows, shape.heads * shape.value_columns());
    check_shape(dq, q.rows, q.columns);
    check_shape(dk, k.rows, k.columns);
    check_shape(dv, v.rows, v.columns);
    if (!shared_key.empty()) check_shape(d_shared_key, k.rows, shared_key.columns);
    backend().attention_input_grad(shape, q, k, v, context, saved, d_context, dq, dk, dv, into_keys, shared_key,
                                   d_shared_key);
  }

  void gelu(const Matrix& x, const Matrix& y) override {
    check_shape(x, y.rows, y.columns);
    check_shape(y, x.rows, x.columns);
    backend().gelu(x, y);
  }

  void gelu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) override {
    check_shape(dy, x.rows, x.columns);
    check_shape(x, x.rows, x.columns);
    check_shape(dx, x.rows, x.columns);
    backend().gelu_input_grad(dy, x, dx);
  }

  void swiglu(const Matrix& x, const Matrix& y) override {
    check_shape(x, y.rows, 2 * y.columns);
    check_shape(y, x.rows, y.columns);
    backend().swiglu(x, y);
  }

  void swiglu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) override {
    check_shape(dy, x.rows, dy.columns);
    check_shape(x, dy.rows, 2 * dy.columns);
    check_shape(dx, x.rows, x.columns);
    backend().swiglu_input_grad(dy, x, dx);
  }

  void add(const Matrix& a, const Matrix& b, const Matrix& sum) override {
    check_shape(a, sum.rows, sum.columns);
    check_shape(b, sum.rows, sum.columns);
    check_shape(sum, a.rows, a.columns);
    backend().add(a, b, sum);
  }

  void copy(const Matrix& from, const Matrix& to) override {
    check_shape(from, to.rows, to.columns);
    check_shape(to, from.rows, from.columns);
    backend().copy(from, to);
  }

  void fill(const Vector& x, float value) override { backend().fill(x, value); }

  void embedding(Tokens tokens, const Matrix& table, std::int64_t first_token, const LearnedPositions& positions,
                 const Matrix& y) override {
    check_tokens_of_parts(tokens, first_token);
    check_shape(table, table.rows, y.columns);
    check_shape(y, std::ssize(tokens), table.columns);
    if (!positions.table.empty()) {
      check_positions(positions, y.rows);
      WEFT_CHECK(positions.table.columns == y.columns);
    }
    backend().embedding(tokens, table, first_token, positions, y);
  }

  void embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first_token,
                             Into into) override {
    check_tokens_of_parts(tokens, first_token);
    check_shape(dtable, dtable.rows, dy.columns);
    check_shape(dy, std::ssize(tokens), dtable.columns);
    backend().embedding_weight_grad(tokens, dy, dtable, first_token, into);
  }

  void positions_weight_grad(const Matrix& dy, const LearnedPositions& d_positions, Into into) override {
    check_positions(d_positions, dy.rows);
    check_shape(dy, dy.rows, d_positions.table.columns);
    backend().positions_weight_grad(dy, d_positions, into);
  }

  void cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities,
                     double& loss) override {
    WEFT_CHECK(vocab > 0 && vocab <= logits.columns);
    check_tokens(targets, vocab);
    check_shape(logits, std::ssize(targets), probabilities.columns);
    check_shape(probabilities, logits.rows, logits.columns);
    backend().cross_entropy(logits, targets, vocab, probabilities, loss);
  }

  void cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out) override {
    check_part(part, logits);
    check_tokens_of_parts(targets, part.first);
    check_shape(logits, std::ssize(targets), logits.columns);
    check_loss_part(out, logits.rows);
    backend().cross_entropy_part(logits, targets, part, out);
  }

  void cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                              const Matrix& probabilities, double& loss) override {
    check_part(part, logits);
    WEFT_CHECK(!parts.empty());
    for (const LossPart& one : parts) check_loss_part(one, logits.rows);
    check_shape(logits, probabilities.rows, probabilities.columns);
    check_shape(probabilities, logits.rows, logits.columns);
    backend().cross_entropy_of_parts(logits, part, parts, probabilities, loss);
  }

  void cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first, double scale,
                                const Matrix& d_logits) override {
    check_tokens_of_parts(targets, first);
    check_shape(probabilities, std::ssize(targets), d_logits.columns);
    check_shape(d_logits, probabilities.rows, probabilities.columns);
    backend().cross_entropy_input_grad(probabilities, targets, first, scale, d_logits);
  }

  void adam(const AdamSettings& settings, std::int64_t step, const GradientClip& clip,
            const UpdatedParameter& parameter, bool& finite) override {
    check_update(step, clip, parameter);
    check_size(parameter.first_moment, parameter.weights.size);
    check_size(parameter.second_moment, parameter.weights.size);
    backend().adam(settings, step, clip, parameter, finite);
  }

  void sgd(const SgdSettings& settings, std::int64_t step, const GradientClip& clip, const UpdatedParameter& parameter,
           bool& finite) override {
    check_update(step, clip, parameter);
    if (settings.momentum != 0) check_size(parameter.first_moment, parameter.weights.size);
    backend().sgd(settings, step, clip, parameter, finite);
  }

  void curvature(const Matrix& x, double scale, const Matrix& sum, Into into) override {
    check_shape(x, x.rows, sum.columns);
    check_shape(sum, x.columns, x.columns);
    backend().curvature(x, scale, sum, into);
  }

  void invert_curvature(const Matrix& curvature, double keep, double damping, const Matrix& average,
                        const Matrix& inverse, bool& finite) override {
    check_shape(curvature, inverse.rows, inverse.rows);
    check_shape(average, inverse.rows, inverse.rows);
    check_shape(inverse, curvature.rows, curvature.rows);
    backend().invert_curvature(curvature, keep, damping, average, inverse, finite);
  }

  void precondition(const LinearGradient& gradient, const Matrix& inputs, const Matrix& outputs,
                    const LinearGradient& direction) override {
    const auto [rows, columns] = std::pair{gradient.weight.rows, gradient.weight.columns};
    check_shape(direction.weight, rows, columns);
    check_optional(gradient.bias, rows);
    check_optional(direction.bias, rows);
    WEFT_CHECK(gradient.bias.empty() == direction.bias.empty());
    if (!inputs.empty()) check_shape(inputs, columns, columns);
    if (!outputs.empty()) check_shape(outputs, rows, rows);
    backend().precondition(gradient, inputs, outputs, direction);
  }

  void square_sum(std::span<const Vector> parts, const Vector& sum) override {
    check_size(sum, 1);
    backend().square_sum(parts, sum);
  }

  void all_finite(const Vector& x, bool& finite) override { backend().all_finite(x, finite); }

  void encode(const Vector& values, const Vector& errors, const EncodingDraw& draw, const EncodedShards& encoded,
              EncodedSquares* squares) override {
    check_encoded(encoded, 1, values);
    check_optional(errors, values.size);
    if (backend_->encodes()) return backend().encode(values, errors, draw, encoded, squares);
    backend().synchronize();
    encode_on_host(values, errors, draw, encoded, squares);
  }
  void decode_sum(const EncodedShards& encoded, std::int64_t summands, const Vector& sum, Into into) override {
    check_encoded(encoded, summands, sum);
    if (backend_->encodes()) return backend().decode_sum(encoded, summands, sum, into);
    backend().synchronize();
    decode_sum_on_host(encoded, summands, sum, into);
  }

  void make_orthonormal(const Matrix& factor, std::uint64_t seed) override {
    check_factor(factor, factor.columns, factor.rows);
    if (backend_->encodes()) return backend().make_orthonormal(factor, seed);
    backend().synchronize();
    weft::make_orthonormal(all_floats(factor), factor.rows, seed);
  }
  void left_factor(const Matrix& gradient, const Matrix& errors, const Matrix& right, const Matrix& left) override {
    check_factors(gradient, errors, left, right);
    if (backend_->encodes()) return backend().left_factor(gradient, errors, right, left);
    backend().synchronize();
    multiply_by_right(low_rank_matrix(gradient, right.rows), all_floats(gradient), all_floats(errors),
                      all_floats(right), all_floats(left));
  }
  void right_factor(const Matrix& gradient, const Matrix& errors, const Matrix& left, const Matrix& right) override {
    check_factors(gradient, errors, left, right);
    if (backend_->encodes()) return backend().right_factor(gradient, errors, left, right);
    backend().synchronize();
    multiply_by_left(low_rank_matrix(gradient, left.rows), all_floats(gradient), all_floats(errors), all_floats(left),
                     all_floats(right));
  }
  void factor_product(const Matrix& left, const Matrix& right, std::int64_t ranks, const Matrix& gradient,
                      const Matrix& errors, EncodedSquares& squares) override {
    check_factors(gradient, errors, left, right);
    WEFT_CHECK(ranks >= 1);
    if (backend_->encodes()) return backend().factor_product(left, right, ranks, gradient, errors, squares);
    backend().synchronize();
    const LowRankSquares found = expand(low_rank_matrix(gradient, left.rows), all_floats(left), all_floats(right),
                                        ranks, all_floats(gradient), all_floats(errors));
    squares = {found.gradient, found.error};
  }

  void gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load,
            Into into) override {
    check_gate(shape, scores, routing, load);
    // Where every expert has room for all rows of every call, their order decides nothing.
    const bool has_room = shape.capacity_of_calls > 0 && shape.capacity >= scores.rows;
    WEFT_CHECK(into == Into::overwrite || passes_capacity_on(shape) || has_room);
    backend().gate(shape, scores, routing, load, into);
  }

  void gate_input_grad(const GateShape& shape, const BalanceLoss& balance, const Matrix& d_weights,
                       const Matrix& scores, const Matrix& routing, const GateLoad& load,
                       const Matrix& d_scores) override {
    check_gate(shape, scores, routing, load);
    WEFT_CHECK(balance.tokens > 0);
    check_shape(d_weights, scores.rows, shape.top_k);
    check_shape(d_scores, scores.rows, scores.columns);
    backend().gate_input_grad(shape, balance, d_weights, scores, routing, load, d_scores);
  }

  void dispatch_rows(const Matrix& x, const Matrix& routing, const Matrix& slots, EmptySlots empty) override {
    check_shape(x, routing.rows, slots.columns);
    check_shape(slots, slots.rows, x.columns);
    check_routing(routing, slots);
    backend().dispatch_rows(x, routing, slots, empty);
  }

  void dispatch_rows_input_grad(const Matrix& d_slots, const Matrix& routing, const Matrix& dx) override {
    check_shape(dx, routing.rows, d_slots.columns);
    check_shape(d_slots, d_slots.rows, dx.columns);
    check_routing(routing, d_slots);
    backend().dispatch_rows_input_grad(d_slots, routing, dx);
  }

  void combine_rows(const Matrix& slots, const Matrix& routing, const Matrix& y) override {
    check_shape(y, routing.rows, slots.columns);
    check_shape(slots, slots.rows, y.columns);
    check_routing(routing, slots);
    backend().combine_rows(slots, routing, y);
  }

  void combine_rows_input_grad(const Matrix& dy, const Matrix& slots, const Matrix& routing, const Matrix& d_slots,
                               const Matrix& d_weights, EmptySlots empty) override {
    check_shape(dy, routing.rows, slots.columns);
    check_shape(slots, d_slots.rows, d_slots.columns);
    check_shape(d_slots, slots.rows, slots.columns);
    check_shape(d_weights, routing.rows, routing.columns / 2);
    check_routing(routing, slots);
    backend().combine_rows_input_grad(dy, slots, routing, d_slots, d_weights, empty);
  }

  void expert_linear(const CapacityBlocks& blocks, const Matrix& x, std::span<const Matrix> weights,
                     std::span<const Vector> biases, const Matrix& y) override {
    check_blocks(blocks, x, y);
    check_weights(blocks, x, y, weights, biases);
    backend().expert_linear(blocks, x, weights, biases, y);
  }

  void expert_linear_input_grad(const CapacityBlocks& blocks, const Matrix& dy, std::span<const Matrix> weights,
                                const Matrix& dx) override {
    check_blocks(blocks, dx, dy);
    check_weights(blocks, dx, dy, weights, {});
    backend().expert_linear_input_grad(blocks, dy, weights, dx);
  }

  void expert_linear_weight_grad(const CapacityBlocks& blocks, const Matrix& x, const Matrix& dy,
                                 std::span<const Matrix> d_weights, std::span<const Vector> d_biases,
                                 Into into) override {
    check_blocks(blocks, x, dy);
    check_weights(blocks, x, dy, d_weights, d_biases);
    backend().expert_linear_weight_grad(blocks, x, dy, d_weights, d_biases, into);
  }

 private:
  Kernels& backend() const {
    backend_->enter();
    return *backend_;
  }
  void check_routing(const Matrix& routing, const Matrix& slots) const {
    WEFT_CHECK(is_matrix(routing) && routing.columns > 0 && routing.columns % 2 == 0);
    WEFT_CHECK(backend_->routing_fits(routing, slots.rows));
  }

  std::unique_ptr<KernelBackend> backend_;
};

}  // namespace

std::unique_ptr<Kernels> checked_kernels(std::unique_ptr<KernelBackend> backend) {
  return std::make_unique<CheckedKernels>(std::move(backend));
}

bool kernels_available() {
  return kernel_module().factory != nullptr;
}

std::string kernels_in_words() {
  const KernelModule& module = kernel_module();
  return module.factory != nullptr ? module.factory->in_words : module.problem;
}

std::unique_ptr<Kernels> make_kernels(const KernelOptions& options) {
  WEFT_CHECK(options.threads > 0);
  const KernelModule& module = kernel_module();
  if (module.factory == nullptr) fail("{}", module.problem);
  // Does not set it again, because another rank may be computing.
  if (module.set_blas_threads != nullptr && module.blas_threads() != options.threads) {
    module.set_blas_threads(options.threads);
  }
  return checked_kernels(std::unique_ptr<KernelBackend>(module.factory->make(options)));
}

}  // namespace weft
