// Kernels that do nothing before synchronize(), as a device with a queue of its own might: whoever reads a result too
// early, or lets an operand go, trains something else.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/kernels.hpp"

namespace weft::test {

class DeferredKernels : public Kernels {
 public:
  explicit DeferredKernels(std::unique_ptr<Kernels> inner) : inner_(std::move(inner)) {}

  void synchronize() override {
    for (const std::function<void()>& call : calls_) call();
    calls_.clear();
  }

  void linear(const Matrix& x, const Matrix& w, const Vector& bias, const Matrix& y, Into into) override {
    later([=, this] { inner_->linear(x, w, bias, y, into); });
  }
  void linear_input_grad(const Matrix& dy, const Matrix& w, const Matrix& dx, Into into) override {
    later([=, this] { inner_->linear_input_grad(dy, w, dx, into); });
  }
  void linear_weight_grad(const Matrix& x, const Matrix& dy, const Matrix& dw, const Vector& dbias,
                          Into into) override {
    later([=, this] { inner_->linear_weight_grad(x, dy, dw, dbias, into); });
  }
  void norm(const Matrix& x, const NormWeights& weights, const Matrix& y) override {
    later([=, this] { inner_->norm(x, weights, y); });
  }
  void norm_input_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Matrix& residual,
                       const Matrix& dx) override {
    later([=, this] { inner_->norm_input_grad(dy, x, weights, residual, dx); });
  }
  void norm_weight_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Vector& dgain,
                        const Vector& dbias, Into into) override {
    later([=, this] { inner_->norm_weight_grad(dy, x, weights, dgain, dbias, into); });
  }
  void dropout(const Matrix& x, const DropoutDraw& draw, const Matrix& residual, KeptElements kept,
               const Matrix& y) override {
    later([=, this] { inner_->dropout(x, draw, residual, kept, y); });
  }
  void dropout_input_grad(const Matrix& dy, double rate, KeptElements kept, const Matrix& dx) override {
    later([=, this] { inner_->dropout_input_grad(dy, rate, kept, dx); });
  }
  void attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& context,
                 const AttentionSaved& saved, const Matrix& shared_key) override {
    later([=, this] { inner_->attention(shape, q, k, v, context, saved, shared_key); });
  }
  void attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                            const Matrix& context, const AttentionSaved& saved, const Matrix& d_context,
                            const Matrix& dq, const Matrix& dk, const Matrix& dv, Into into_keys,
                            const Matrix& shared_key, const Matrix& d_shared_key) override {
    later([=, this] {
      inner_->attention_input_grad(shape, q, k, v, context, saved, d_context, dq, dk, dv, into_keys, shared_key,
                                   d_shared_key);
    });
  }
  void gelu(const Matrix& x, const Matrix& y) override {
    later([=, this] { inner_->gelu(x, y); });
  }
  void gelu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) override {
    later([=, this] { inner_->gelu_input_grad(dy, x, dx); });
  }
  void swiglu(const Matrix& x, const Matrix& y) override {
    later([=, this] { inner_->swiglu(x, y); });
  }
  void swiglu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) override {
    later([=, this] { inner_->swiglu_input_grad(dy, x, dx); });
  }
  void add(const Matrix& a, const Matrix& b, const Matrix& sum) override {
    later([=, this] { inner_->add(a, b, sum); });
  }
  void copy(const Matrix& from, const Matrix& to) override {
    later([=, this] { inner_->copy(from, to); });
  }
  void fill(const Vector& x, float value) override {
    later([=, this] { inner_->fill(x, value); });
  }
  void embedding(Tokens tokens, const Matrix& table, std::int64_t first_token, const LearnedPositions& positions,
                 const Matrix& y) override {
    later([=, this] { inner_->embedding(tokens, table, first_token, positions, y); });
  }
  void embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first_token,
                             Into into) override {
    later([=, this] { inner_->embedding_weight_grad(tokens, dy, dtable, first_token, into); });
  }
  void positions_weight_grad(const Matrix& dy, const LearnedPositions& d_positions, Into into) override {
    later([=, this] { inner_->positions_weight_grad(dy, d_positions, into); });
  }
  void cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities,
                     double& loss) override {
    later([=, this, &loss] { inner_->cross_entropy(logits, targets, vocab, probabilities, loss); });
  }
  void cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out) override {
    later([=, this] { inner_->cross_entropy_part(logits, targets, part, out); });
  }
  void cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                              const Matrix& probabilities, double& loss) override {
    later([=, this, &loss] { inner_->cross_entropy_of_parts(logits, part, parts, probabilities, loss); });
  }
  void cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first, double scale,
                                const Matrix& d_logits) override {
    later([=, this] { inner_->cross_entropy_input_grad(probabilities, targets, first, scale, d_logits); });
  }
  void gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load,
            Into into) override {
    later([=, this] { inner_->gate(shape, scores, routing, load, into); });
  }
  void gate_input_grad(const GateShape& shape, const BalanceLoss& balance, const Matrix& d_weights,
                       const Matrix& scores, const Matrix& routing, const GateLoad& load,
                       const Matrix& d_scores) override {
    later([=, this] { inner_->gate_input_grad(shape, balance, d_weights, scores, routing, load, d_scores); });
  }
  void dispatch_rows(const Matrix& x, const Matrix& routing, const Matrix& slots, EmptySlots empty) override {
    later([=, this] { inner_->dispatch_rows(x, routing, slots, empty); });
  }
  void dispatch_rows_input_grad(const Matrix& d_slots, const Matrix& routing, const Matrix& dx) override {
    later([=, this] { inner_->dispatch_rows_input_grad(d_slots, routing, dx); });
  }
  void combine_rows(const Matrix& slots, const Matrix& routing, const Matrix& y) override {
    later([=, this] { inner_->combine_rows(slots, routing, y); });
  }
  void combine_rows_input_grad(const Matrix& dy, const Matrix& slots, const Matrix& routing, const Matrix& d_slots,
                               const Matrix& d_weights, EmptySlots empty) override {
    later([=, this] { inner_->combine_rows_input_grad(dy, slots, routing, d_slots, d_weights, empty); });
  }
  void expert_linear(const CapacityBlocks& blocks, const Matrix& x, std::span<const Matrix> weights,
                     std::span<const Vector> biases, const Matrix& y) override {
    later([=, this] { inner_->expert_linear(blocks, x, weights, biases, y); });
  }
  void expert_linear_input_grad(const CapacityBlocks& blocks, const Matrix& dy, std::span<const Matrix> weights,
                                const Matrix& dx) override {
    later([=, this] { inner_->expert_linear_input_grad(blocks, dy, weights, dx); });
  }
  void expert_linear_weight_grad(const CapacityBlocks& blocks, const Matrix& x, const Matrix& dy,
                                 std::span<const Matrix> d_weights, std::span<const Vector> d_biases,
                                 Into into) override {
    later([=, this] { inner_->expert_linear_weight_grad(blocks, x, dy, d_weights, d_biases, into); });
  }
  void adam(const AdamSettings& settings, std::int64_t step, const GradientClip& clip,
            const UpdatedParameter& parameter, bool& finite) override {
    later([=, this, &finite] { inner_->adam(settings, step, clip, parameter, finite); });
  }
  void sgd(const SgdSettings& settings, std::int64_t step, const GradientClip& clip, const UpdatedParameter& parameter,
           bool& finite) override {
    later([=, this, &finite] { inner_->sgd(settings, step, clip, parameter, finite); });
  }
  void curvature(const Matrix& x, double scale, const Matrix& sum, Into into) override {
    later([=, this] { inner_->curvature(x, scale, sum, into); });
  }
  void invert_curvature(const Matrix& curvature, double keep, double damping, const Matrix& average,
                        const Matrix& inverse, bool& finite) override {
    later([=, this, &finite] { inner_->invert_curvature(curvature, keep, damping, average, inverse, finite); });
  }
  void precondition(const LinearGradient& gradient, const Matrix& inputs, const Matrix& outputs,
                    const LinearGradient& direction) override {
    later([=, this] { inner_->precondition(gradient, inputs, outputs, direction); });
  }
  void square_sum(std::span<const Vector> parts, const Vector& sum) override {
    later([=, this] { inner_->square_sum(parts, sum); });
  }
  void all_finite(const Vector& x, bool& finite) override {
    later([=, this, &finite] { inner_->all_finite(x, finite); });
  }
  void encode(const Vector& values, const Vector& errors, const EncodingDraw& draw, const EncodedShards& encoded,
              EncodedSquares* squares) override {
    later([=, this] { inner_->encode(values, errors, draw, encoded, squares); });
  }
  void decode_sum(const EncodedShards& encoded, std::int64_t summands, const Vector& sum, Into into) override {
    later([=, this] { inner_->decode_sum(encoded, summands, sum, into); });
  }
  void make_orthonormal(const Matrix& factor, std::uint64_t seed) override {
    later([=, this] { inner_->make_orthonormal(factor, seed); });
  }
  void left_factor(const Matrix& gradient, const Matrix& errors, const Matrix& right, const Matrix& left) override {
    later([=, this] { inner_->left_factor(gradient, errors, right, left); });
  }
  void right_factor(const Matrix& gradient, const Matrix& errors, const Matrix& left, const Matrix& right) override {
    later([=, this] { inner_->right_factor(gradient, errors, left, right); });
  }
  void factor_product(const Matrix& left, const Matrix& right, std::int64_t ranks, const Matrix& gradient,
                      const Matrix& errors, EncodedSquares& squares) override {
    later([=, this, &squares] { inner_->factor_product(left, right, ranks, gradient, errors, squares); });
  }

 protected:
  virtual void later(std::function<void()> call) { calls_.push_back(std::move(call)); }

  std::unique_ptr<Kernels> inner_;

 private:
  std::vector<std::function<void()>> calls_;
};

}  // namespace weft::test
