// Graph rewrite: operations that travel together become one (a bucket of gradients, a layer's parameters).
#pragma once

#include <vector>

#include "graph/step_graph.hpp"
#include "graph/substitute.hpp"

namespace weft {

// Each set becomes one operation in the place of its first member (of its last where `at_last`): it reads and writes
// what all members do, and names them as origins. Members agree in class, role, phase, group and repetition. Transfers
// with members in several classes are merged alike in all of them; the result has the least of their numbers. The graph
// keeps the rules of verify_graph where the sets do not tie operations into a cycle.
struct MergeSet {
  std::vector<OpId> members;
  bool at_last = false;
  friend bool operator==(const MergeSet&, const MergeSet&) = default;
};
StepGraph merge_operations(const StepGraph& graph, const std::vector<MergeSet>& sets);

// Returns the same sets for the legs of a substituted graph: each leg of the members of a set travels together; members
// under different rules do not.
std::vector<MergeSet> merge_sets_of_legs(const SubstitutedGraph& substituted, const std::vector<MergeSet>& of_whole);

// Puts together what travels together where nothing overlaps: all once-a-step gradient reductions of a group, all
// updates, all parameter gathers; per layer what ZeRO-2 and 3 move in every micro-batch, the embedding and the head
// apart.
std::vector<MergeSet> one_bucket(const StepGraph& graph);

}  // namespace weft
