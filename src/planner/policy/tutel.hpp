// Policy `tutel` (Hwang et al. 2022): the all-to-alls of a layer and its experts in 1, 2, 4 or 8 parts by capacity, one
// part travelling while another is computed, whichever is fastest; gradients as in `ddp`.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

Overlap tutel_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
