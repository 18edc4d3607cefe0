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
// Fills blocks and order from the passes of every stage (graph/pipeline_schedule.hpp), operations in graph order.
void order_blocks(Plan& plan, const PipelineOrders& of_stages);
// Sorts the reductions at the head of every update block: the bucket that backward finishes first goes first.
// `finished` is, by operation, the graph position of the last gradient it waits for, or -1 for any other operation.
void order_reductions(Plan& plan, const std::vector<std::int32_t>& finished);

}  // namespace weft
