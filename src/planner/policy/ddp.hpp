// Policy `ddp`: PyTorch's DistributedDataParallel. Gradients travel in buckets of 25 MiB while backward goes on; the
// update waits for all of them; parameters (ZeRO-1 and 2) are gathered after it.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

Overlap ddp_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
