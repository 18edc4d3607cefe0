// Tensor operations of a transformer, forward and backward, without autograd: every gradient is a call of its own, dX
// apart from dW. A rank has an object of its own, which one thread at a time may call.
//
// Kernels may be asynchronous: a call may return before its result is there. Calls take effect in their order. Results
// that the host wants to know (a loss, whether something is finite) are written to memory that the caller gives. After
// synchronize() it may be read, and operands and results may be touched. The caller promises that sizes fit together;
// WEFT_CHECK checks it.
//
// Built on libtorch's ATen; where there is none, make_kernels() throws Error and kernels_available() is false.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/arguments.hpp"
#include "kernels/experts.hpp"
#include "kernels/matrix.hpp"

namespace weft {

// The gradient of a linear layer, or what is made of it.
struct LinearGradient {
  Matrix weight;
  Vector bias;  // empty: the layer has none
};
inline constexpr const char* kNoCurvature = "--optimizer kfac: these kernels have none for curvature";

class Kernels {
 public:
  virtual ~Kernels() = default;
  // Returns when all that was called has ended: at once where kernels run on the calling thread.
  virtual void synchronize() = 0;

  // y = x w^T + bias. w has a row per output column. An empty bias adds nothing.
  virtual void linear(const Matrix& x, const Matrix& w, const Vector& bias, const Matrix& y,
                      Into into = Into::overwrite) = 0;
  // dx = dy w
  virtual void linear_input_grad(const Matrix& dy, const Matrix& w, const Matrix& dx, Into into = Into::overwrite) = 0;
  // dw = dy^T x, dbias = sum of dy's rows. Empty dbias: none is wanted.
  virtual void linear_weight_grad(const Matrix& x, const Matrix& dy, const Matrix& dw, const Vector& dbias,
                                  Into into) = 0;

  virtual void norm(const Matrix& x, const NormWeights& weights, const Matrix& y) = 0;
  // dx = gradient through the norm, plus `residual` (the gradient of the branch around it) where it is not empty.
  virtual void norm_input_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Matrix& residual,
                               const Matrix& dx) = 0;
  virtual void norm_weight_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Vector& dgain,
                                const Vector& dbias, Into into) = 0;

  // y = x dropped out, plus `residual` where it is not empty.
  virtual void dropout(const Matrix& x, const DropoutDraw& draw, const Matrix& residual, KeptElements kept,
                       const Matrix& y) = 0;
  virtual void dropout_input_grad(const Matrix& dy, double rate, KeptElements kept, const Matrix& dx) = 0;

  // If `shared_key` is not empty, a key head is its columns of k followed by this key's, which all heads share; only
  // these last columns of queries and keys are rotated (DeepSeek-V2, section 2.1.3).
  virtual void attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                         const Matrix& context, const AttentionSaved& saved, const Matrix& shared_key = {}) = 0;
  // Queries of one sequence may come in several calls, each with its own first_position: those after the first add to
  // dk, dv and d_shared_key. dq is always overwritten.
  virtual void attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                                    const Matrix& context, const AttentionSaved& saved, const Matrix& d_context,
                                    const Matrix& dq, const Matrix& dk, const Matrix& dv,
                                    Into into_keys = Into::overwrite, const Matrix& shared_key = {},
                                    const Matrix& d_shared_key = {}) = 0;

  virtual void gelu(const Matrix& x, const Matrix& y) = 0;  // with the error function
  virtual void gelu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) = 0;
  // x holds gates, then values: y = silu(gate) * value.
  virtual void swiglu(const Matrix& x, const Matrix& y) = 0;
  virtual void swiglu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) = 0;

  virtual void add(const Matrix& a, const Matrix& b, const Matrix& sum) = 0;
  virtual void copy(const Matrix& from, const Matrix& to) = 0;
  virtual void fill(const Vector& x, float value) = 0;

  // y = table[token], plus the row of its place in its sequence where there are learned positions. `table` holds the
  // vocabulary's rows from first_token on; a token of another part of the vocabulary gives zeros (plus its position's
  // row).
  virtual void embedding(Tokens tokens, const Matrix& table, std::int64_t first_token,
                         const LearnedPositions& positions, const Matrix& y) = 0;
  // Tokens of other parts of the vocabulary add nothing.
  virtual void embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first_token,
                                     Into into) = 0;
  // Positions without a token get zero when overwriting, and keep their value when adding.
  virtual void positions_weight_grad(const Matrix& dy, const LearnedPositions& d_positions, Into into) = 0;

  // Rows of logits are softmaxed over their first `vocab` columns; the others are padding and get probability 0. The
  // loss is the sum over the tokens of -log p(target).
  virtual void cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities,
                             double& loss) = 0;
  // The same loss over a vocabulary whose columns are spread over ranks, as Megatron-LM has it: each rank makes its
  // part, the parts of all are exchanged, each rank finishes its own columns.
  virtual void cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out) = 0;
  // `parts` are those of all ranks in the same order everywhere: then the loss has the same bits on every rank.
  // Probabilities may lie where the logits do.
  virtual void cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                                      const Matrix& probabilities, double& loss) = 0;
  // d logits = scale (p - onehot(target)). Column c is token first + c of the vocabulary, so padding may only lie
  // behind the vocabulary's end; targets elsewhere have no one-hot here.
  virtual void cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first, double scale,
                                        const Matrix& d_logits) = 0;

  // kernels/experts.hpp says what the experts' routing and slots are.
  // Finds the top_k largest scores of each row (the first of equal ones) by softmax, and their weights and slots. With
  // Into::add the rows continue a batch whose earlier rows left `load`, and get what they would get in the whole batch;
  // allowed only where passes_capacity_on(shape).
  virtual void gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load,
                    Into into) = 0;
  // d_weights is indexed by token and choice. Those of dropped choices count too, so they must be zero where nothing
  // used them.
  virtual void gate_input_grad(const GateShape& shape, const BalanceLoss& balance, const Matrix& d_weights,
                               const Matrix& scores, const Matrix& routing, const GateLoad& load,
                               const Matrix& d_scores) = 0;
  // A token's row goes to the slots of its choices.
  virtual void dispatch_rows(const Matrix& x, const Matrix& routing, const Matrix& slots, EmptySlots empty) = 0;
  // dx = the sum of the rows in the token's slots.
  virtual void dispatch_rows_input_grad(const Matrix& d_slots, const Matrix& routing, const Matrix& dx) = 0;
  // y = the weighted sum of the rows in the token's slots: zero where all choices were dropped.
  virtual void combine_rows(const Matrix& slots, const Matrix& routing, const Matrix& y) = 0;
  virtual void combine_rows_input_grad(const Matrix& dy, const Matrix& slots, const Matrix& routing,
                                       const Matrix& d_slots, const Matrix& d_weights, EmptySlots empty) = 0;
  // y = x w^T + bias with the expert's own weight, biases all or none. Rows that are not used stay what they are.
  virtual void expert_linear(const CapacityBlocks& blocks, const Matrix& x, std::span<const Matrix> weights,
                             std::span<const Vector> biases, const Matrix& y) = 0;
  virtual void expert_linear_input_grad(const CapacityBlocks& blocks, const Matrix& dy, std::span<const Matrix> weights,
                                        const Matrix& dx) = 0;
  virtual void expert_linear_weight_grad(const CapacityBlocks& blocks, const Matrix& x, const Matrix& dy,
                                         std::span<const Matrix> d_weights, std::span<const Vector> d_biases,
                                         Into into) = 0;

  // Updates like the `step`-th call (from 1) of torch.optim.AdamW (torch.optim.SGD). `finite` becomes false where the
  // gradient holds a NaN or an infinity; then nothing else changes.
  virtual void adam(const AdamSettings& settings, std::int64_t step, const GradientClip& clip,
                    const UpdatedParameter& parameter, bool& finite) = 0;
  virtual void sgd(const SgdSettings& settings, std::int64_t step, const GradientClip& clip,
                   const UpdatedParameter& parameter, bool& finite) = 0;

  // K-FAC (Martens and Grosse 2015), for backends that have it.
  // sum = scale x^T x
  virtual void curvature(const Matrix&, double, const Matrix&, Into) { throw Error(kNoCurvature); }
  // average = keep average + (1 - keep) curvature, then inverse = (average + damping mean(diagonal) I)^-1. With keep =
  // 0 nothing is read of the average. `finite` becomes false where there is no such inverse.
  virtual void invert_curvature(const Matrix& /*curvature*/, double /*keep*/, double /*damping*/,
                                const Matrix& /*average*/, const Matrix& /*inverse*/, bool& /*finite*/) {
    throw Error(kNoCurvature);
  }
  // direction = P / rms(P) with P = outputs gradient inputs for the weights and outputs gradient for the bias; the root
  // mean square is over both. Empty inverses stand for the identity.
  virtual void precondition(const LinearGradient& /*gradient*/, const Matrix& /*inputs*/, const Matrix& /*outputs*/,
                            const LinearGradient& /*direction*/) {
    throw Error(kNoCurvature);
  }

  // The sum of the squares of all elements, taken in double precision and written to the one element of `sum`.
  virtual void square_sum(std::span<const Vector> parts, const Vector& sum) = 0;
  virtual void all_finite(const Vector& x, bool& finite) = 0;

  // Encodes values + errors, and leaves in `errors` what encoding takes away. Empty errors: the values alone are
  // encoded. `squares` are for the host, as losses are; null: they are not wanted. All backends write the same bytes.
  virtual void encode(const Vector& values, const Vector& errors, const EncodingDraw& draw,
                      const EncodedShards& encoded, EncodedSquares* squares) = 0;
  // sum = the sum of `summands` encoded tensors of its size, in their order.
  virtual void decode_sum(const EncodedShards& encoded, std::int64_t summands, const Vector& sum,
                          Into into = Into::overwrite) = 0;

  // PowerSGD (compress/low_rank.hpp), of one matrix of gradients and the errors of earlier steps, both of fp32. A
  // factor is a matrix with a row for each of its columns. Makes the columns of a factor orthonormal. Ranks with the
  // same factor and seed get the same numbers.
  virtual void make_orthonormal(const Matrix& factor, std::uint64_t seed) = 0;
  // left = (gradient + errors) right
  virtual void left_factor(const Matrix& gradient, const Matrix& errors, const Matrix& right, const Matrix& left) = 0;
  // right = transposed(gradient + errors) left
  virtual void right_factor(const Matrix& gradient, const Matrix& errors, const Matrix& left, const Matrix& right) = 0;
  // gradient = left transposed(right), and errors what that takes away of this rank's share of it, one of `ranks`.
  // `squares` are for the host: of the gradient as it was, and of the new errors.
  virtual void factor_product(const Matrix& left, const Matrix& right, std::int64_t ranks, const Matrix& gradient,
                              const Matrix& errors, EncodedSquares& squares) = 0;
};

bool kernels_available();
std::string kernels_in_words();  // "libtorch 1.13 (cpu)", or why there are none

struct KernelOptions {
  int threads = 1;  // inside one kernel. Kernels that use OpenBLAS share the number that was given last.
};
std::unique_ptr<Kernels> make_kernels(const KernelOptions& options = {});

}  // namespace weft
