// The order of a plan's operations, chosen so that transfers and computation run side by side: parts of products while
// other parts travel, weight gradients where the chain of input gradients waits (plan/schedule/cyclic/).
#pragma once

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"

namespace weft {

// Takes a plan with queues, blocking and blocks in some order that its graph allows; orders the operations of every
// block anew. Without a pipeline a class's whole step is looked at, from one iteration to the next; in a pipeline each
// forward and each backward block by itself. Transfers with members in several classes keep their order. To be called
// before what rests on positions in blocks: overlap_sharded_traffic, place_values. `visits`: operations that a local
// search for a better order may look at, in all.
void weave_blocks(Plan& plan, const CostModel& cost, std::int64_t visits = 0);

}  // namespace weft
