// The once-a-step part of a plan in the order of the next use (policy `priority`).
#pragma once

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"

namespace weft {

// Gradient reductions go in the order in which a link would take them that always chooses, among those whose gradients
// backward has finished, the one that the next forward needs first. Updates and gathers go in the order of use: updates
// on the queue `extra`, where they run while compute waits, gathers on a queue of their own. To be called after
// order_blocks; of the graph, what reductions and gathers have in common with the other classes is ordered alike.
struct UrgentFirstOptions {
  bool hold_back = true;  // behind the first stage of a plain pipeline reductions wait for the end of backward
  bool postpone = true;   // weight gradients may wait (schedule/postpone.hpp)
};
void urgent_first(Plan& plan, const CostModel& cost, const UrgentFirstOptions& options = {});

}  // namespace weft
