// Policy `fsdp`: the order of PyTorch's fully sharded data parallelism. Layer by layer, parameters are gathered ahead
// of their use and gradients reduced behind backward (Zhao et al. 2023, section 3.3); below ZeRO-3 what there is of it.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

Overlap fsdp_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
