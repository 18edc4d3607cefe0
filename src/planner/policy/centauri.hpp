// Policy `centauri`: communication partitioning and scheduling in tiers (Chen et al. 2024), chosen by modelled cost.
// Operation tier: the tensor-parallel traffic of a layer and the products around it are cut by rows and pipelined.
// Layer tier: a layer's weight gradients run where its chain of input gradients waits. Model tier: gradients are
// reduced under backward layer by layer, parameters gathered ahead of their layers, across the iteration boundary too;
// without tensor parallelism and pipelines, simulated steps decide between that, `fsdp`'s units and `megatron-param`'s
// buckets. Each tier decides in its own scope: nothing moves from one layer to another.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

Overlap centauri_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
