// Policy `serial`: nothing overlaps. Every transfer but the pipeline's sends is waited for on the spot; gradients are
// reduced in one bucket after the last backward, parameters gathered after the update.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

Overlap serial_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
