// Makes the usual skeleton of a plan: a forward and a backward block per model chunk (or what else the pipeline
// schedule names), one update block, in the pipeline's order; a communication queue per group and direction.
#pragma once

#include <string>

#include "plan/plan.hpp"

namespace weft {

// Returns the communication queue of that name, which is added where the class has none.
QueueId communication_queue(ClassPlan& plan, const std::string& name);
// Gives a class one queue for compute and one for every kind of group; sets plan.classes and plan.issues.
void issue_by_group(Plan& plan);
// Makes every transfer block but the pipeline's sends.
void block_on_transfers(Plan& plan);
// Which half of a split backward an operation of it is in. Gradients of a norm's weights are the work of a moment, but
// what they read is as large as a product's operand. Where all of it is computed again in backward and would have to
// stay, they are computed beside input gradients, unless each micro-batch's are reduced.
BlockKind half_of_backward(const Operation& op, const Layout& layout);
// Fills blocks and order from the passes of every stage (graph/pipeline_schedule.hpp), operations in graph order.
void order_blocks(Plan& plan, const PipelineOrders& of_stages);
// Sorts the reductions at the head of every update block: the bucket that backward finishes first goes first.
// `finished` is, by operation, the graph position of the last gradient it waits for, or -1 for any other operation.
void order_reductions(Plan& plan, const std::vector<std::int32_t>& finished);

}  // namespace weft
