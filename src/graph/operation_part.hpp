// A part of an operation. Two kinds of operations may be cut:
//   a once-a-step gradient reduction or parameter gather, so that an urgent one need not wait for the whole of a large
//   one;
//   what a layer, the head and the loss do to tokens of a micro-batch row by row, forward and back (products, norms,
//   activations, experts, and traffic of tensor and expert parallelism between them), so that one part travels while
//   the next is computed. The loss over a vocabulary that is spread over ranks stays whole.
//
// A part names one origin and the pieces begin..end of `of` along an axis, 0 unless stated. It reads and writes the
// same values as its origin, but only its slice of each. For a value with E elements, a part of an all_reduce touches
// the elements floor(E begin / of) to floor(E end / of). A part of a reduce_scatter or an all_gather touches that range
// of every rank's shard (of ceil(E / ranks) elements), so the parts of all ranks are whole transfers. Rows are cut
// alike, as pieces of every shard (TokenRows), so part i of a gather is what part i of the product behind it reads.
//
// Experts can be cut along two axes. Along axis 0, by tokens, a part follows its tokens through router, gate, dispatch,
// all-to-all, experts and combine. How many of them go to which expert is data: a part of the all-to-all has the sizes
// that the gate found, and is planned with those of balanced loads. The gate passes on how much of each expert's
// capacity is used: part i reads what parts 0..i-1 wrote of the expert_load, so tokens get the same slots as without
// cuts and parts never touch each other's slots. That is possible only where the gate takes tokens in order
// (RoutedSlots). Along axis 1, by capacity, a part of an all-to-all or an expert's product has the slots of piece i of
// every expert; router, gate, dispatch and combine stay whole. Pieces along different axes overlap.
//
// An operation that reads the whole of a value waits for all its parts. The legs of a substituted transfer
// (graph/substitute.hpp) are transfers of their own and are cut alike: part i of a leg works on what part i of the leg
// before it leaves.
#pragma once

#include <cstdint>

#include "base/element_range.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// No transfer of a step is cut into more parts than this.
inline constexpr std::int64_t kMaxCuts = 1024;
// No operation that repeats is cut into more parts; the bound (bound/) relies on that.
inline constexpr std::int64_t kMaxRowCuts = 8;

// What pieces are counted along.
inline constexpr std::int32_t kTokenAxis = 0, kCapacityAxis = 1;

bool is_whole(const Origin& origin);
bool is_part(const Operation& operation);

// Whether an operation of the graph of a model may be cut at all.
bool may_be_cut(const StepGraph& graph, const Operation& operation);
// Returns whether it may be cut into `parts` >= 2 equal ones. Rows are cut only into equal parts, and attention only
// into whole sequences, because tokens of a sequence attend to each other.
bool may_be_cut_into(const StepGraph& graph, const Operation& operation, std::int64_t parts,
                     std::int32_t axis = kTokenAxis);
// Returns whether the operation has sizes by capacity: experts, and what brings tokens there and back.
bool works_on_slots(const Operation& operation);
// Returns the operation with only the slots that balanced loads fill, which is the work of all its parts by tokens
// together.
Operation with_balanced_load(const StepGraph& graph, const Operation& operation);

// For transfers of a step, the number E in floor() above (the elements of the value for all_reduce, or of a shard), and
// how many elements of the communication each of them stands for.
struct CutLength {
  std::int64_t elements = 0;
  std::int64_t transferred_each = 0;
};
CutLength cut_length(const StepGraph& graph, const Operation& operation);

// The elements that a part touches out of `elements`.
ElementRange part_range(std::int64_t elements, const Origin& part);
// Returns the first dimension of the key of a part of `whole`, which for transfers is their bytes. Over all parts they
// add up to that of the whole.
std::int64_t part_size(const StepGraph& graph, const Operation& whole, const Origin& part);

// Returns the whole that a part of rows was cut from, by its sizes and reads.
Operation with_all_rows(const StepGraph& graph, const Operation& part);
// Returns what a part reads in addition to its origin: the loads that the gate's earlier parts counted. -1: nothing.
ValueId handed_on(const Operation& whole, const Origin& part);

// The slice of a value that an operation touches: pieces begin..end of `of`; 0..1 of 1 is all of it.
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
