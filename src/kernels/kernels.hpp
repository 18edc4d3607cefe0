// Tensor operations of a transformer, forward and backward, without autograd: every gradient is a call of its own, dX
// apart from dW. They run on the calling thread (see set_kernel_threads) and return when the result is there. Sizes
// must fit together; that is the caller's promise, checked by WEFT_CHECK.
//
// Built on libtorch's ATen; where there is none, a stub throws Error and kernels_available() is false.
#pragma once

#include <span>
#include <string>

#include "kernels/matrix.hpp"

namespace weft {

bool kernels_available();
std::string kernels_in_words();  // "libtorch 1.13 (cpu)", or why there are none
// Threads inside one kernel, of every thread that calls kernels from now on.
void set_kernel_threads(int threads);

// y = x w^T + bias. w has a row per output column. An empty bias adds nothing.
void linear(const Matrix& x, const Matrix& w, const Vector& bias, const Matrix& y, Into into = Into::overwrite);
// dx = dy w
void linear_input_grad(const Matrix& dy, const Matrix& w, const Matrix& dx, Into into = Into::overwrite);
// dw = dy^T x, dbias = sum of dy's rows. Empty dbias: none is wanted.
void linear_weight_grad(const Matrix& x, const Matrix& dy, const Matrix& dw, const Vector& dbias, Into into);

// LayerNorm where there is a bias, RMSNorm where it is empty.
struct NormWeights {
  Vector gain, bias;
  double epsilon = 1e-5;
};
void norm(const Matrix& x, const NormWeights& weights, const Matrix& y);
// dx = gradient through the norm, plus `residual` (the gradient of the branch around it) where it is not empty.
void norm_input_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Matrix& residual,
                     const Matrix& dx);
void norm_weight_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Vector& dgain,
                      const Vector& dbias, Into into);

// Dropout without state: whether an element is zeroed is a hash of its place, so every layout draws the same, and so
// does who computes it again. docs/oracle.md has the hash.
struct DropoutDraw {
  double rate = 0;                          // the share that becomes zero; what is kept grows by 1 / (1 - rate)
  std::uint64_t key = 0;                    // of the seed, the step and the place in the model
  std::span<const std::int64_t> rows = {};  // the number of every row of the matrix, the same whoever holds it
};
// A byte for every element, row after row without gaps: 1 where it is kept.
using KeptElements = std::span<std::uint8_t>;
// y = x dropped out, plus `residual` where it is not empty.
void dropout(const Matrix& x, const DropoutDraw& draw, const Matrix& residual, KeptElements kept, const Matrix& y);
void dropout_input_grad(const Matrix& dy, double rate, KeptElements kept, const Matrix& dx);

// Of the softmax: element j of the row of (sequence, head, query) is that of row (sample * heads + first_head + head) *
// length + position of the query.
struct AttentionDropout {
  double rate = 0;  // 0: none
  std::uint64_t key = 0;
  std::span<const std::int64_t> samples = {};  // of the sequences, in the batch of all ranks
  std::int64_t first_head = 0, heads = 0;      // of the model
  std::int64_t length = 0;                     // of its sequences
};

// Causal attention of `sequences` sequences that follow each other in the rows. Queries are rows of heads side by side,
// keys and values of kv_heads; each key head serves heads / kv_heads query heads in a row. Query i of a sequence stands
// at position first_position + i, key j at j, and sees the keys up to its own position.
struct AttentionShape {
  std::int64_t sequences = 1, heads = 1, kv_heads = 1, head_size = 0;
  std::int64_t queries = 0, keys = 0;  // of a sequence
  std::int64_t first_position = 0;
  double rotary_base = 0;  // rotates queries and keys by their positions first, halves of a head paired; 0: does not
  AttentionDropout dropout = {};
  std::int64_t value_size = 0;  // of a value head; 0: head_size
  std::int64_t key_pitch = 0,
               value_pitch = 0;  // columns from one key (value) head to the next; 0: they follow each other

  std::int64_t value_columns() const { return value_size > 0 ? value_size : head_size; }
  std::int64_t key_step(std::int64_t columns) const { return key_pitch > 0 ? key_pitch : columns; }
  std::int64_t value_step() const { return value_pitch > 0 ? value_pitch : value_columns(); }
};
// What forward keeps for backward: the logarithm of every row's sum of exponentials (rows in order of sequence, head,
// query), or the softmax itself (as many rows, a column per key), with dropout also what was kept of it and what that
// left. Either may be empty; not both.
struct AttentionSaved {
  Vector log_sums;
  Matrix softmax;
  KeptElements kept = {};
  Matrix dropped = {};
};
// `shared_key`, where it is not empty: a key head is its columns of k and then this key's, which all heads share; of
// queries and keys only these last columns are rotated (DeepSeek-V2, section 2.1.3).
void attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& context,
               const AttentionSaved& saved, const Matrix& shared_key = {});
// Queries of one sequence may come in several calls, each with its own first_position: those after the first add to dk,
// dv and d_shared_key. dq is always overwritten.
void attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                          const Matrix& context, const AttentionSaved& saved, const Matrix& d_context, const Matrix& dq,
                          const Matrix& dk, const Matrix& dv, Into into_keys = Into::overwrite,
                          const Matrix& shared_key = {}, const Matrix& d_shared_key = {});

void gelu(const Matrix& x, const Matrix& y);  // with the error function
void gelu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx);
// x holds gates, then values: y = silu(gate) * value.
void swiglu(const Matrix& x, const Matrix& y);
void swiglu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx);

void add(const Matrix& a, const Matrix& b, const Matrix& sum);

// y = table[token], plus the row of its place in its sequence where there are learned positions. `table` holds the
// vocabulary's rows from first_token on; a token of another part of the vocabulary gives zeros (plus its position's
// row).
struct LearnedPositions {
  Matrix table;
  std::span<const std::int64_t> positions;  // where the rows of one sequence stand; row r of y is at [r % size]
};
void embedding(Tokens tokens, const Matrix& table, std::int64_t first_token, const LearnedPositions& positions,
               const Matrix& y);
// Tokens of other parts of the vocabulary add nothing.
void embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first_token, Into into);
// Rows of d_positions that no token stands at become (or stay) what Into says of nothing.
void positions_weight_grad(const Matrix& dy, const LearnedPositions& d_positions, Into into);

// Rows of logits are softmaxed over their first `vocab` columns; the others are padding and get probability 0. Returns
// the sum over the tokens of -log p(target).
double cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities);

// The same loss over a vocabulary whose columns are spread over ranks, as Megatron-LM has it: each rank makes its part,
// the parts of all are exchanged, each rank finishes its own columns.
struct VocabularyPart {
  std::int64_t first = 0, count = 0;  // columns of the whole; what the matrix has beyond `count` is padding
};
// Of every token: the largest logit, the sum of exp(logit - largest), and the target's logit where it is in this part
// and 0 elsewhere. A part without columns has the lowest float as its largest, and sums of 0.
struct LossPart {
  Vector largest, sum, target;
};
void cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out);
// `parts` are those of all ranks in the same order everywhere: then the sum returned has the same bits on every rank.
// Probabilities may lie where the logits do.
double cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                              const Matrix& probabilities);

// d logits = scale (p - onehot(target)). Column c is token first + c of the vocabulary, so padding may only lie behind
// the vocabulary's end; targets elsewhere have no one-hot here.
void cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first, double scale,
                              const Matrix& d_logits);

struct AdamSettings {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;  // AdamW's: decoupled
};
// Updates in place as torch.optim.AdamW does at its `step`-th call (from 1). The gradient is scaled first. False where
// it holds a NaN or an infinity; nothing is changed then.
bool adam(const AdamSettings& settings, std::int64_t step, double gradient_scale, const Vector& gradient,
          const Vector& weights, const Vector& first_moment, const Vector& second_moment);
struct SgdSettings {
  double learning_rate = 1e-3, momentum = 0, weight_decay = 0;  // as torch.optim.SGD
};
bool sgd(const SgdSettings& settings, std::int64_t step, double gradient_scale, const Vector& gradient,
         const Vector& weights, const Vector& momentum);

double square_sum(const Vector& x);
void fill(const Vector& x, float value);

}  // namespace weft
