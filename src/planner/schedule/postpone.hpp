// Weight gradients that wait (policy `priority`): nothing in backward needs them. Those whose parameters are used late
// in the next forward move behind the rest of backward, where they fill the time in which the most urgent gradients
// travel.
#pragma once

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"

namespace weft {

// To be called after order_blocks. Chooses by a walk through compute and the link what shortens the step most, and
// moves nothing where nothing does; only where a rank holds the whole model (no pipeline) and no norm makes all updates
// wait.
void postpone_weight_grads(Plan& plan, const CostModel& cost);

}  // namespace weft
