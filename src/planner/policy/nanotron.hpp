// Policy `nanotron`: gradients travel in DistributedDataParallel's buckets under the last backward, as `ddp` has them;
// tensor-parallel traffic runs beside the products of column-parallel linears' backward, as in Megatron; parameters
// (ZeRO-1) are gathered after the update.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

Overlap nanotron_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
