// Arguments of kernels beside matrices: shapes, settings, and tensors that belong together.
#pragma once

#include <cstdint>
#include <span>

#include "compress/compression_format.hpp"
#include "kernels/matrix.hpp"

namespace weft {

// LayerNorm where there is a bias, RMSNorm where it is empty.
struct NormWeights {
  Vector gain, bias;
  double epsilon = 1e-5;
};

// Dropout without state: a hash of an element's place decides whether it is zeroed, so every layout and every
// recomputation draws the same. docs/oracle.md has the hash.
struct DropoutDraw {
  double rate = 0;                          // the share that becomes zero; what is kept grows by 1 / (1 - rate)
  std::uint64_t key = 0;                    // of the seed, the step and the place in the model
  std::span<const std::int64_t> rows = {};  // the number of every row of the matrix, the same whoever holds it
};
// A byte for every element, row after row without gaps: 1 where it is kept.
using KeptElements = std::span<std::uint8_t>;

// Dropout of the softmax: element j of the row of (sequence, head, query) is that of row (sample * heads + first_head +
// head) * length + position of the query.
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
// What forward keeps for backward: the logarithm of every row's sum of exponentials (rows ordered by sequence, head,
// query), or the softmax itself (as many rows, a column per key), with dropout also the kept elements and the result of
// dropout. One of the two may be empty.
struct AttentionSaved {
  Vector log_sums;
  Matrix softmax;
  KeptElements kept = {};
  Matrix dropped = {};
};

struct LearnedPositions {
  Matrix table;
  std::span<const std::int64_t> positions;  // where the rows of one sequence stand; row r is at [r % size]
};

// The part of a vocabulary whose columns are spread over ranks.
struct VocabularyPart {
  std::int64_t first = 0, count = 0;  // columns of the whole; what the matrix has beyond `count` is padding
};
// For every token: the largest logit, the sum of exp(logit - largest), and the target's logit, or 0 where another part
// has it. A part without columns has the lowest float as its largest logit and a sum of 0.
struct LossPart {
  Vector largest, sum, target;
};

// Gradients are clipped by their norm over all ranks as torch.nn.utils.clip_grad_norm_ does: they are multiplied by
// limit / (norm + kClipEpsilon), at most by 1.
struct GradientClip {
  Vector square_sum;  // one element, the square of the norm, read when the update runs; empty: nothing is clipped
  double limit = 0;
};
inline constexpr double kClipEpsilon = 1e-6;

// Shards of a tensor, each encoded by itself (compress/compressor.hpp), one after the other, each in the room of a
// full one. There may be several such tensors, whose elements are added up when they are decoded.
struct EncodedShards {
  CompressionFormat format = CompressionFormat::none;
  std::int64_t elements = 0;  // of a full shard
  std::int64_t shards = 1;    // of a tensor
  Vector bytes;
};
// Formats that round or choose at random draw from the seed and the number of a block; shards begin at whole blocks.
struct EncodingDraw {
  std::uint64_t seed = 0;
  std::int64_t first_block = 0;  // of the first shard
};
// What an encoding was given, and what it has left for the next: sums of squares.
struct EncodedSquares {
  double gradient = 0, error = 0;
};

// A parameter that an optimizer changes in place.
struct UpdatedParameter {
  Vector gradient, weights;
  Vector first_moment;        // of sgd: the momentum; empty where it has none
  Vector second_moment = {};  // of adam
  Vector master = {};         // the weights in fp32, which are updated and then rounded; empty: the weights are fp32
};
struct AdamSettings {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;  // AdamW's: decoupled
};
// The two factors of a linear layer's curvature are averaged over steps and inverted. The elements of the direction
// that follows from them have a root mean square of 1, as those of Adam's nearly have.
struct KfacSettings {
  double learning_rate = 3e-4, momentum = 0.9;
  double decay = 0.95;    // of the average: what stays of it when a step's curvature is added
  double damping = 0.03;  // added to the diagonal of a factor, as a multiple of the diagonal's mean
};
struct SgdSettings {
  double learning_rate = 1e-3, momentum = 0, weight_decay = 0;  // as torch.optim.SGD
};

}  // namespace weft
