// An operation of a plan as the search for an order sees it (planner/schedule/cyclic/).
#pragma once

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"
#include "planner/schedule/cyclic/cyclic_problem.hpp"

namespace weft {

// A transfer that runs beside compute goes to the queue that the plan gives it; everything else is compute.
CyclicOperation cyclic_operation(const Plan& plan, const CostModel& cost, OpId operation);

}  // namespace weft
