// A part of an operation. Two kinds of operations may be cut:
//   a once-a-step gradient reduction or parameter gather, so that an urgent one need not wait for the whole of a large
//   one;
//   what a dense layer does to the tokens of a micro-batch row by row, forward and back (products, norms, activations,
//   and the traffic of tensor parallelism between them), so that one part travels while the next is computed.
//
// A part names one origin and the pieces begin..end of `of` along axis 0; it reads and writes the same values as its
// origin, but of each only its slice. Of a value with E elements a part of an all_reduce touches the elements
// floor(E begin / of) to floor(E end / of). A part of a reduce_scatter or an all_gather touches that range of every
// rank's shard (of ceil(E / ranks) elements), so the parts of all ranks are whole transfers of their own. Rows are cut
// alike: pieces of every shard (TokenRows), so part i of a gather is what part i of the product behind it reads.
// Whoever reads the whole of a value waits for all its parts. The stages of a substituted transfer (plan/partition/
// substitute.hpp) are transfers of their own and cut alike: part i of a stage works on what part i of the one before it
// leaves.
#pragma once

#include <cstdint>

#include "base/element_range.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// No transfer of a step is cut into more parts than this.
inline constexpr std::int64_t kMaxCuts = 1024;
// No operation that repeats is cut into more: the bound (plan/bound) counts on it.
inline constexpr std::int64_t kMaxRowCuts = 8;

bool is_whole(const Origin& origin);
bool is_part(const Operation& operation);

// Whether an operation of the graph of a model may be cut at all.
bool may_be_cut(const StepGraph& graph, const Operation& operation);
// Whether it may be cut into `parts` equal ones, 2 or more. Rows come in equal parts only, and attention in whole
// sequences: each of their tokens looks at the others.
bool may_be_cut_into(const StepGraph& graph, const Operation& operation, std::int64_t parts);

// What floor() above is taken of, for transfers of a step: the elements of the value (all_reduce) or of a shard, and
// the bytes that one of them stands for in `bytes` of the communication.
struct CutLength {
  std::int64_t elements = 0;
  std::int64_t bytes_each = 0;
};
CutLength cut_length(const StepGraph& graph, const Operation& operation);

// The elements that a part touches out of `elements`.
ElementRange part_range(std::int64_t elements, const Origin& part);
// The first dimension of the key of a part of `whole`: of transfers the bytes that it carries. Those of all parts add
// up to that of the whole.
std::int64_t part_size(const StepGraph& graph, const Operation& whole, const Origin& part);

// The whole that a part of rows was cut from, by its sizes.
Operation with_all_rows(const Operation& part);

// What an operation touches of a value: pieces begin..end of `of`, all of it where they are 0..1 of 1.
struct Slice {
  std::int64_t begin = 0, end = 1, of = 1;
  friend bool operator==(const Slice&, const Slice&) = default;
};
// Weights are read whole by every part.
Slice slice_of(const StepGraph& graph, const Operation& operation, ValueId value);
constexpr bool overlap(const Slice& a, const Slice& b) {
  return a.begin * b.of < b.end * a.of && b.begin * a.of < a.end * b.of;
}

}  // namespace weft
