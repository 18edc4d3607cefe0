// A plan together with its unfolding, which verifier, simulator and runtime ask for.
#pragma once

#include "plan/plan.hpp"
#include "plan/unfold.hpp"

namespace weft {

struct UnfoldedPlan {
  Plan plan;
  Unfolded unfolded;  // of `plan`
};

}  // namespace weft
