// List scheduling: a queue that is free takes the most urgent operation that is ready. Several measures of urgency are
// tried, and the one with the shortest period wins.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/schedule/cyclic/cyclic_graph.hpp"
#include "planner/schedule/cyclic/cyclic_problem.hpp"

namespace weft {

struct OrderFound {
  QueueOrders orders;
  double period_ns = 0;
};

// O(n log n) per rule. Edges of distance 0 that form a cycle (with the fixed orders) are a broken invariant.
OrderFound list_order(const CyclicProblem& problem);

struct SequenceFound {
  std::vector<std::int32_t> sequence;
  double period_ns = 0;
};
SequenceFound list_sequence(const CyclicGraph& graph);
// Returns the best orders of each rule, the shortest period first and no two of the same period: starts for a search.
std::vector<SequenceFound> list_sequences(const CyclicGraph& graph);

}  // namespace weft
