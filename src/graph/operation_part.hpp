// A part of an operation. Two kinds of operations may be cut:
//   a once-a-step gradient reduction or parameter gather, so that an urgent one need not wait for the whole of a large
//   one;
//   what a layer does to the tokens of a micro-batch row by row, forward and back (products, norms, activations,
//   experts, and the traffic of tensor and expert parallelism between them), so that one part travels while the next is
//   computed.
//
// A part names one origin and the pieces begin..end of `of` along an axis, 0 unless said otherwise; it reads and writes
// the same values as its origin, but of each only its slice. Of a value with E elements a part of an all_reduce touches
// the elements floor(E begin / of) to floor(E end / of). A part of a reduce_scatter or an all_gather touches that range
// of every rank's shard (of ceil(E / ranks) elements), so the parts of all ranks are whole transfers of their own. Rows
// are cut alike: pieces of every shard (TokenRows), so part i of a gather is what part i of the product behind it
// reads.
//
// Experts can be cut along two axes. Along axis 0, by tokens, a part follows its tokens through router, gate, dispatch,
// all-to-all, experts and combine. How many of them go to which expert is data: a part of the all-to-all has the
// sizes that the gate found, and is planned with those of balanced loads. The gate hands on how much of each expert's
// capacity is used: part i reads what parts 0..i-1 wrote of the expert_load, so that tokens get the very slots that
// they get without cuts and parts never touch each other's. That is possible only where the gate takes tokens in order
// (RoutedSlots). Along axis 1, by capacity, a part of an all-to-all or an expert's product has the slots of piece i of
// every expert, whoever lies there; router, gate, dispatch and combine stay whole. Pieces along different axes meet.
//
// Whoever reads the whole of a value waits for all its parts. The legs of a substituted transfer (planner/partition/
// substitute.hpp) are transfers of their own and cut alike: part i of a leg works on what part i of the one before it
// leaves.
#pragma once

#include <cstdint>

#include "base/element_range.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// No transfer of a step is cut into more parts than this.
inline constexpr std::int64_t kMaxCuts = 1024;
// No operation that repeats is cut into more: the bound (bound/) counts on it.
inline constexpr std::int64_t kMaxRowCuts = 8;

// What pieces are counted along.
inline constexpr std::int32_t kTokenAxis = 0, kCapacityAxis = 1;

bool is_whole(const Origin& origin);
bool is_part(const Operation& operation);

// Whether an operation of the graph of a model may be cut at all.
bool may_be_cut(const StepGraph& graph, const Operation& operation);
// Whether it may be cut into `parts` equal ones, 2 or more. Rows come in equal parts only, and attention in whole
// sequences: each of their tokens looks at the others.
bool may_be_cut_into(const StepGraph& graph, const Operation& operation, std::int64_t parts,
                     std::int32_t axis = kTokenAxis);
// What experts do and what brings tokens there and back: what sizes by capacity are of.
bool works_on_slots(const Operation& operation);
// As it would be with no more slots than balanced loads fill: what all of its parts by tokens do together.
Operation with_balanced_load(const StepGraph& graph, const Operation& operation);

// What floor() above is taken of, for transfers of a step: the elements of the value (all_reduce) or of a shard, and
// how many elements of the communication each of them stands for.
struct CutLength {
  std::int64_t elements = 0;
  std::int64_t transferred_each = 0;
};
CutLength cut_length(const StepGraph& graph, const Operation& operation);

// The elements that a part touches out of `elements`.
ElementRange part_range(std::int64_t elements, const Origin& part);
// The first dimension of the key of a part of `whole`: of transfers the bytes that it carries. Those of all parts add
// up to that of the whole.
std::int64_t part_size(const StepGraph& graph, const Operation& whole, const Origin& part);

// The whole that a part of rows was cut from, by its sizes and what it reads.
Operation with_all_rows(const StepGraph& graph, const Operation& part);
// What a part reads beyond what its origin does: the loads that the gate's parts before it counted. -1: nothing.
ValueId handed_on(const Operation& whole, const Origin& part);

// What an operation touches of a value: pieces begin..end of `of`, all of it where they are 0..1 of 1.
struct Slice {
  std::int64_t begin = 0, end = 1, of = 1;
  std::int32_t axis = kTokenAxis;
  friend bool operator==(const Slice&, const Slice&) = default;
};
// The slice of a value that this part writes, or of one that it reads. Every part reads weights whole.
Slice slice_of(const StepGraph& graph, const Operation& operation, ValueId value);
Slice read_slice_of(const StepGraph& graph, const Operation& operation, ValueId value);
constexpr bool overlap(const Slice& a, const Slice& b) {
  if (a.axis != b.axis) return true;
  return a.begin * b.of < b.end * a.of && b.begin * a.of < a.end * b.of;
}

}  // namespace weft
