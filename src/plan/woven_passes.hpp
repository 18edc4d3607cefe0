// Whether a plan's passes are woven into each other.
#pragma once

#include "plan/plan.hpp"

namespace weft {

// Returns whether some block is cut into sections between which more lies than what a step does once.
bool has_woven_passes(const ClassPlan& plan);

}  // namespace weft
