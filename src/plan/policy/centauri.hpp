// Policy `centauri`: communication partitioning and scheduling in tiers (Chen et al. 2024), chosen by modelled cost
// without simulation. Operation tier: tensor-parallel traffic and the products around it are cut by rows and pipelined.
// Layer tier: weight gradients run where the chain of input gradients waits. Model tier: gradients are reduced under
// backward layer by layer, parameters gathered ahead of their layers, across the iteration boundary too.
#pragma once

#include "plan/policy/overlap.hpp"

namespace weft {

Overlap centauri_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
