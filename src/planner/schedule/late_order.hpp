// The order of a whole step in which weight gradients, with their reductions, updates and gathers, may run under the
// next forward (plan/late.hpp): where forward waits for its all-to-alls, there is else nothing to compute.
//
// The step is stated as a cyclic problem as in schedule/weave.hpp, but cut elsewhere: an iteration of the problem is
// the backward and the update of one step and the forward of the next. In that view a weight gradient may stand
// anywhere between what it reads and the next forward of its layer, and the search decides on it as on any other order.
// What it puts behind the first operation of forward is late.
#pragma once

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"
#include "planner/plan_request.hpp"

namespace weft {

// Whether the search looks for such orders: ZeRO 0 and 1, one micro-batch, no pipeline, no compression, no clipping
// (all updates would wait for all gradients), and ranks that are not GPUs (exec/stream_run.hpp runs one step as one
// recording).
bool allows_late_order(const PlanRequest& request);
// Whether this plan can have one: the same, and a single rank class, as classes would have to agree on what is late.
bool may_order_late(const Plan& plan);

struct LateOptions {
  // Of the last layers, whose weight gradients wait for the next forward. List schedules take what is ready, so left to
  // themselves they would spend all weight gradients on the gaps of backward.
  std::int32_t layers = 0;
  std::int64_t visits = 0;  // operations that a local search may look at beyond the first good order
};
// Takes a plan with queues, blocking and blocks; orders all operations of its step anew and says which are late.
void order_with_late(Plan& plan, const CostModel& cost, const LateOptions& options);

}  // namespace weft
