// Policy `weft`: everything is decided together, by simulation in the loop (planner/search/). Never slower than any
// other policy on the same input, because all of them are among the candidates.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

// Needs PlanRequest::search.
Overlap weft_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
