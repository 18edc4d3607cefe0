// The ways to carry out one communication, as a tree with a cost at every node: first by which rule (the primitive, and
// the levels of its group; collective/substitution.hpp), then in how many parts, cut together with the operations that
// make or use its data. What a leaf costs:
//   its legs, cut into k parts, follow each other on different links: sum t_i + (k - 1) max t_i of the parts' times;
//   operations that are cut with it take C_k in all, and run beside all parts but one: T - min(T, C_k) (k - 1) / k is
//   left of T, and C_k - C_1 is what the smaller pieces lose.
// Every leaf is one that plans can be made of.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/step_graph.hpp"

namespace weft {

struct ChoiceNode {
  TransferRule rule;
  std::int32_t parts = 1;
  double transfer_s = 0;          // all its transfers, its legs side by side where they can be
  double left_s = 0;              // of that, what nothing that is cut with it runs beside
  double loss_s = 0;              // what smaller parts add to the operations that are cut with it
  std::vector<ChoiceNode> under;  // empty: a leaf. The figures above are then its own, else those of its best leaf
  double cost_s() const { return left_s + loss_s; }
};

// Returns the tree of a transfer of a model's graph. A transfer with members in several classes has a tree of one leaf.
ChoiceNode choice_tree(const StepGraph& graph, const CostModel& cost, OpId communication);

// Says, by operation, what the best leaf of every gradient reduction and parameter gather is.
struct CheapestChoices {
  // The rule, where it is better than none by more than a hundredth; empty: none is anywhere.
  std::vector<TransferRule> rules;
  // Into how many parts it is cut, where the step has it once: legs follow each other part by part. What ZeRO 2 and 3
  // move in every micro-batch stays whole. Empty: nothing is cut.
  std::vector<std::int32_t> parts;
};
CheapestChoices cheapest_choices(const StepGraph& graph, const CostModel& cost);

}  // namespace weft
