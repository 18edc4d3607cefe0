// Decides where each value lies. A rank class has one address space: state that persists, values that live from
// forward to backward in as many copies as micro-batches are in flight, pools of what transfers read beside compute,
// and scratch that blocks share.
#pragma once

#include "plan/unfold.hpp"

namespace weft {

// Sets plan.placements and every ClassPlan::memory, and returns the placed plan unfolded. The plan's order must be
// complete.
Unfolded place_values(Plan& plan);

}  // namespace weft
