// Policy `lancet` (Jiang et al. 2024): forward is cut where that hides all-to-alls best, dense layers around the
// experts with them; in backward weight gradients are computed while all-to-alls travel. Backward is cut too where that
// is worth more than what weight gradients hide of it.
#pragma once

#include "planner/overlap.hpp"

namespace weft {

Overlap lancet_overlap(const PlanRequest& request, const StepGraph& graph);

}  // namespace weft
