// Policy `weft`: everything is decided together, by simulation in the loop (planner/search/). All other
// policies are among the candidates; those that few micro-batches show to be 5 % slower than a plan that fits are left
// out.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

// Needs PlanRequest::search.
Overlap weft_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
