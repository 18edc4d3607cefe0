// The order of a plan's operations, chosen so that transfers and computation run side by side: parts of products while
// other parts travel, weight gradients where the chain of input gradients waits (planner/schedule/cyclic/).
#pragma once

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"

namespace weft {

struct WeaveOptions {
  // As ShardedOverlap has them: what a unit's gather and gradients will wait for limits how far units may mix. -1: they
  // are waited for on the spot.
  int prefetch = -1, gradient_buffers = -1;
  bool within_layers = false;   // what belongs to a layer stays between the layers around it
  bool pairs_in_order = false;  // weave_pairs: the blocks of a pair keep their order
  // A weight's gradient may come before those who read the weight in backward, because the update stands behind all of
  // backward in the order of compute: for whole steps without urgent_first, and ZeRO 0 and 1.
  bool free_weight_grads = false;
  std::int64_t visits = 0;  // operations that a local search for a better order may look at, in all
};

// Takes a plan with queues, blocking and blocks in some order that its graph allows; orders the operations of every
// block anew. Without a pipeline a class's whole step is looked at, from one iteration to the next; in a pipeline, and
// where layers stay apart, each forward and each backward block by itself. Transfers with members in several classes
// keep their order. What reads a weight in backward comes before the weight's gradient: the update then finds nobody
// using it. To be called before what rests on positions in blocks: overlap_sharded_traffic, place_values.
void weave_blocks(Plan& plan, const CostModel& cost, const WeaveOptions& options);

// The same for a plan whose blocks are in the orders given, which have pairs: the forward of one micro-batch and the
// backward of another become pieces that take turns, so that either computes while the other communicates. ZeRO 0 and 1
// only.
void weave_pairs(Plan& plan, const CostModel& cost, const PipelineOrders& orders, const WeaveOptions& options);

}  // namespace weft
