// Orders made in one go: whenever a lane is free it takes the most urgent of what is ready. Several meanings of urgent
// are tried, and the one whose step repeats soonest wins.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/schedule/cyclic/cyclic_graph.hpp"
#include "planner/schedule/cyclic/cyclic_problem.hpp"

namespace weft {

struct OrderFound {
  LaneOrders orders;
  double period_ns = 0;
};

// O(n log n) per rule. Edges of distance 0 that form a cycle (with the fixed orders) are a broken invariant.
OrderFound list_order(const CyclicProblem& problem);

struct SequenceFound {
  std::vector<std::int32_t> sequence;
  double period_ns = 0;
};
SequenceFound list_sequence(const CyclicGraph& graph);
// The best of each rule, the shortest period first, none of the same period: where a search can start from.
std::vector<SequenceFound> list_sequences(const CyclicGraph& graph);

}  // namespace weft
