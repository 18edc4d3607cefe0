// The usual skeleton of a plan: a forward and a backward block per model chunk, one update block, in the pipeline's
// order; a communication queue per group and direction.
#pragma once

#include "plan/plan.hpp"

namespace weft {

// One queue for compute and one for every kind of group a class communicates in; sets plan.classes and plan.issues.
void issue_by_group(Plan& plan);
// Issues a transfer to its class's communication queue of that name, which is made where there is none.
void issue_to_queue(Plan& plan, OpId operation, const std::string& queue);
// Fills blocks and order from the layout's pipeline schedule, operations in graph order.
void order_blocks(Plan& plan);
// Sorts the reductions at the head of every update block: the bucket that backward finishes first goes first.
// `finished`: by operation, the graph position of the last gradient it waits for; -1: not a reduction.
void order_reductions(Plan& plan, const std::vector<std::int32_t>& finished);

}  // namespace weft
