// Policy `priority`: overlap across iterations (ByteScheduler, Peng et al. 2019). Gradients travel in parts, those
// first that the next forward needs first; each layer is updated on its own, and forward waits for its own parameters
// only.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

Overlap priority_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
