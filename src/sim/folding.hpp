// Finds what can be simulated as one event. In a rank's chain, consecutive operations form a *fold* when nothing
// outside touches their inside: an inner operation waits for operations of its own chain alone (so, for the one before
// it), and what waits for an inner operation other than the last is later in the same chain. As long as no other
// transfer is under way on the rank and nobody else uses the links of the fold's transfers, its operations follow each
// other without a gap, each as long as alone.
//
// The problem becomes a graph of nodes: folds, and single operations. An operation of no length is never part of a
// fold: with two ends at one instant, the last-finishing predecessor would not be the one before.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine.hpp"

namespace weft {

struct FoldedNode {
  std::int32_t first = 0, count = 1;  // operations first .. first + count - 1
  std::int32_t resources = 0;         // of a fold's transfers: index into Folding::resource_sets
  // These are of its first operation. Events need them, and the table of all operations is too large for caches.
  std::int32_t rank = 0;
  JointId joint;
  SimQueue queue = SimQueue::compute;
  bool is_fold() const { return count > 1; }
};

struct NodeEdge {
  std::int32_t to = 0;
  std::int16_t distance = 0;
};

struct Folding {
  std::vector<FoldedNode> nodes;  // ascending; every operation is in one of them
  // Who waits for the end of node n: successors[successor_begin[n] .. successor_begin[n + 1]). What the chain's order
  // implies is left out.
  std::vector<std::int64_t> successor_begin;
  std::vector<NodeEdge> successors;
  std::vector<std::int32_t> waits, waits_at_first;  // by node: edges into it; those within the iteration
  std::vector<std::vector<std::int32_t>> resource_sets;
  std::vector<std::int64_t> alone_before;  // [i]: sum of the durations alone of operations 0 .. i - 1
};

// Without `folds` every operation is a node and every edge stays.
Folding fold(const SimProblem& problem, bool folds);

}  // namespace weft
