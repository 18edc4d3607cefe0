// The kernels inside the module: what kernels.hpp says, sizes already checked.
//
// Matrix products are ATen's. The rest are plain loops that the compiler vectorises: one pass over memory where ATen
// takes several, and ATen 1.13 computes gelu's gradient element by element on aarch64 (a tenth of a whole training
// step).
#pragma once

#include "kernels/kernels.hpp"

namespace weft::aten {

void use_threads(int threads);

void linear(const Matrix& x, const Matrix& w, const Vector& bias, const Matrix& y, Into into);
void linear_input_grad(const Matrix& dy, const Matrix& w, const Matrix& dx, Into into);
void linear_weight_grad(const Matrix& x, const Matrix& dy, const Matrix& dw, const Vector& dbias, Into into);

void norm(const Matrix& x, const NormWeights& weights, const Matrix& y);
void norm_input_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Matrix& residual,
                     const Matrix& dx);
void norm_weight_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Vector& dgain,
                      const Vector& dbias, Into into);

void dropout(const Matrix& x, const DropoutDraw& draw, const Matrix& residual, KeptElements kept, const Matrix& y);
void dropout_input_grad(const Matrix& dy, double rate, KeptElements kept, const Matrix& dx);

void attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& context,
               const AttentionSaved& saved, const Matrix& shared_key);
void attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                          const Matrix& context, const AttentionSaved& saved, const Matrix& d_context, const Matrix& dq,
                          const Matrix& dk, const Matrix& dv, Into into_keys, const Matrix& shared_key,
                          const Matrix& d_shared_key);

void gelu(const Matrix& x, const Matrix& y);
void gelu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx);
void swiglu(const Matrix& x, const Matrix& y);
void swiglu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx);
void add(const Matrix& a, const Matrix& b, const Matrix& sum);

void embedding(Tokens tokens, const Matrix& table, std::int64_t first_token, const LearnedPositions& positions,
               const Matrix& y);
void embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first_token, Into into);
void positions_weight_grad(const Matrix& dy, const LearnedPositions& d_positions, Into into);

double cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities);
void cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out);
double cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                              const Matrix& probabilities);
void cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first, double scale,
                              const Matrix& d_logits);

bool adam(const AdamSettings& settings, std::int64_t step, double gradient_scale, const Vector& gradient,
          const Vector& weights, const Vector& first_moment, const Vector& second_moment);
bool sgd(const SgdSettings& settings, std::int64_t step, double gradient_scale, const Vector& gradient,
         const Vector& weights, const Vector& momentum);
double square_sum(const Vector& x);
void fill(const Vector& x, float value);

}  // namespace weft::aten
