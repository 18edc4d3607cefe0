// Moves of one operation within a sequence, and which of them can shorten a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/schedule/cyclic/cyclic_graph.hpp"

namespace weft {

struct SequenceMove {
  std::int32_t operation = 0;
  std::int32_t anchor = 0;   // of the same queue or link
  bool behind = false;       // to right behind the anchor; else right before it
  bool keep_others = false;  // the order of the other queues stays, as far as that goes
};

// Carries out moves. Operations that must follow a delayed one are delayed with it, and operations that must precede
// one that is brought forward are brought forward with it. Data alone decides which these are, or the order of the
// other queues as well (keep_others).
class SequenceMover {
 public:
  // `graph` must outlive this.
  explicit SequenceMover(const CyclicGraph& graph);

  // The part of the sequence that a move changes: from `first` on, as many as in `arranged`, which is valid until the
  // next call. Empty where the move contradicts the data, or changes nothing.
  struct Change {
    std::size_t first = 0;
    std::span<const std::int32_t> arranged;
  };
  // `place`: of each operation in the sequence.
  Change change(const SequenceMove& move, std::span<const std::int32_t> sequence, std::span<const std::int32_t> place);

  // Carries it out; false: it is empty.
  bool apply(const SequenceMove& move, std::vector<std::int32_t>& sequence);

 private:
  bool goes_along(std::int32_t i, std::int32_t moved, bool keep_others, std::span<const CyclicNeighbour> neighbours);

  const CyclicGraph& graph_;
  std::vector<char> marked_;           // by operation: goes along; none between calls
  std::vector<char> resource_marked_;  // by resource: one of its operations goes along
  std::vector<std::int32_t> going_;    // of the part of the sequence between the two
  std::vector<std::int32_t> arranged_;
};

// A step is as long as its critical cycle. Where the cycle follows a queue (or a link) through several operations, it
// becomes shorter only if one of them leaves that stretch: goes before its first or behind its last. (For shops without
// repetition: Balas and Vazacopoulos, Guided local search with shifting bottleneck, 1998.) Stretches that go on into
// the next iteration are left at the side on which the operation is. Of a stretch of more than `limit` operations, half
// of those are near its ends and half spread over it, others with every `turn`.
std::vector<SequenceMove> moves_off_cycle(const CyclicGraph& graph, std::span<const std::int32_t> sequence,
                                          std::span<const std::int32_t> cycle, std::size_t limit, std::size_t turn);

}  // namespace weft
