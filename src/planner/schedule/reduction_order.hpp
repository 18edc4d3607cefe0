// The once-a-step reductions in the order in which backward finishes their gradients.
#pragma once

#include "plan/plan.hpp"

namespace weft {

// `graph_order`: blocks still have their operations in the order of the graph.
void order_reductions_by_backward(Plan& plan, bool graph_order);

}  // namespace weft
