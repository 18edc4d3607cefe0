// Policies `megatron-dist`, `megatron-grad`, `megatron-param`: the three levels of Megatron-LM and MindSpeed. The
// distributed optimizer (--zero) alone; with --overlap-grad-reduce; with --overlap-param-gather too.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

// Each model chunk has one bucket, which goes after backward; nothing overlaps.
Overlap megatron_dist_overlap(const PlanRequest& request, const StepGraph& graph);
// Buckets are reduced while backward goes on.
Overlap megatron_grad_overlap(const PlanRequest& request, const StepGraph& graph);
// Parameters, too, are gathered (ZeRO-1 and 2), in the same buckets, while the next iteration's forward goes on.
Overlap megatron_param_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
