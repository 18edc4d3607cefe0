// The kernels of a CUDA device. Every call gives its work to the context's current stream and returns; matrices are of
// bf16 or f32, as each says itself, and arithmetic is in f32.
#pragma once

#include "kernels/cuda/context.hpp"
#include "kernels/cuda/products.hpp"
#include "kernels/kernel_backend.hpp"

namespace weft::cuda {

class FastAttention;

// Cosines and sines of rotary positions, computed once and again where more are wanted.
class AngleTable {
 public:
  const float* angles(Context& context, double base, std::int64_t columns, std::int64_t positions);

 private:
  double base_ = 0;
  std::int64_t columns_ = 0, positions_ = 0;
  DeviceMemory values_;
};

class CudaKernels final : public KernelBackend {
 public:
  explicit CudaKernels(Context& context);
  ~CudaKernels() override;

  void enter() override { context_.enter(); }
  // The kernels themselves leave slots alone that do not exist: looking here would wait for the device.
  bool routing_fits(const Matrix&, std::int64_t) override { return true; }
  void synchronize() override;

  void linear(const Matrix& x, const Matrix& w, const Vector& bias, const Matrix& y, Into into) override;
  void linear_input_grad(const Matrix& dy, const Matrix& w, const Matrix& dx, Into into) override;
  void linear_weight_grad(const Matrix& x, const Matrix& dy, const Matrix& dw, const Vector& dbias, Into into) override;
  void norm(const Matrix& x, const NormWeights& weights, const Matrix& y) override;
  void norm_input_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Matrix& residual,
                       const Matrix& dx) override;
  void norm_weight_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Vector& dgain,
                        const Vector& dbias, Into into) override;
  void dropout(const Matrix& x, const DropoutDraw& draw, const Matrix& residual, KeptElements kept,
               const Matrix& y) override;
  void dropout_input_grad(const Matrix& dy, double rate, KeptElements kept, const Matrix& dx) override;
  void attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& context,
                 const AttentionSaved& saved, const Matrix& shared_key) override;
  void attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                            const Matrix& context, const AttentionSaved& saved, const Matrix& d_context,
                            const Matrix& dq, const Matrix& dk, const Matrix& dv, Into into_keys,
                            const Matrix& shared_key, const Matrix& d_shared_key) override;
  void gelu(const Matrix& x, const Matrix& y) override;
  void gelu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) override;
  void swiglu(const Matrix& x, const Matrix& y) override;
  void swiglu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) override;
  void add(const Matrix& a, const Matrix& b, const Matrix& sum) override;
  void embedding(Tokens tokens, const Matrix& table, std::int64_t first_token, const LearnedPositions& positions,
                 const Matrix& y) override;
  void embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first_token,
                             Into into) override;
  void positions_weight_grad(const Matrix& dy, const LearnedPositions& d_positions, Into into) override;
  void cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities,
                     double& loss) override;
  void cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out) override;
  void cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                              const Matrix& probabilities, double& loss) override;
  void cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first, double scale,
                                const Matrix& d_logits) override;
  void gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load,
            Into into) override;
  void gate_input_grad(const GateShape& shape, const BalanceLoss& balance, const Matrix& d_weights,
                       const Matrix& scores, const Matrix& routing, const GateLoad& load,
                       const Matrix& d_scores) override;
  void dispatch_rows(const Matrix& x, const Matrix& routing, const Matrix& slots, EmptySlots empty) override;
  void dispatch_rows_input_grad(const Matrix& d_slots, const Matrix& routing, const Matrix& dx) override;
  void combine_rows(const Matrix& slots, const Matrix& routing, const Matrix& y) override;
  void combine_rows_input_grad(const Matrix& dy, const Matrix& slots, const Matrix& routing, const Matrix& d_slots,
                               const Matrix& d_weights, EmptySlots empty) override;
  void expert_linear(const CapacityBlocks& blocks, const Matrix& x, std::span<const Matrix> weights,
                     std::span<const Vector> biases, const Matrix& y) override;
  void expert_linear_input_grad(const CapacityBlocks& blocks, const Matrix& dy, std::span<const Matrix> weights,
                                const Matrix& dx) override;
  void expert_linear_weight_grad(const CapacityBlocks& blocks, const Matrix& x, const Matrix& dy,
                                 std::span<const Matrix> d_weights, std::span<const Vector> d_biases,
                                 Into into) override;
  void copy(const Matrix& from, const Matrix& to) override;
  void fill(const Vector& x, float value) override;
  void adam(const AdamSettings& settings, std::int64_t step, const GradientClip& clip,
            const UpdatedParameter& parameter, bool& finite) override;
  void sgd(const SgdSettings& settings, std::int64_t step, const GradientClip& clip, const UpdatedParameter& parameter,
           bool& finite) override;
  void curvature(const Matrix& x, double scale, const Matrix& sum, Into into) override;
  void invert_curvature(const Matrix& curvature, double keep, double damping, const Matrix& average,
                        const Matrix& inverse, bool& finite) override;
  void precondition(const LinearGradient& gradient, const Matrix& inputs, const Matrix& outputs,
                    const LinearGradient& direction) override;
  void square_sum(std::span<const Vector> parts, const Vector& sum) override;
  void all_finite(const Vector& x, bool& finite) override;
  bool encodes() const override { return true; }
  void encode(const Vector& values, const Vector& errors, const EncodingDraw& draw, const EncodedShards& encoded,
              EncodedSquares* squares) override;
  void decode_sum(const EncodedShards& encoded, std::int64_t summands, const Vector& sum, Into into) override;
  void make_orthonormal(const Matrix& factor, std::uint64_t seed) override;
  void left_factor(const Matrix& gradient, const Matrix& errors, const Matrix& right, const Matrix& left) override;
  void right_factor(const Matrix& gradient, const Matrix& errors, const Matrix& left, const Matrix& right) override;
  void factor_product(const Matrix& left, const Matrix& right, std::int64_t ranks, const Matrix& gradient,
                      const Matrix& errors, EncodedSquares& squares) override;

 private:
  Context& context_;
  Products products_;
  AngleTable angles_;
  std::unique_ptr<FastAttention> fast_attention_;
};

}  // namespace weft::cuda
