// The part of a plan's step that a loss without training needs: what validation runs.
#pragma once

#include <vector>

#include "plan/unfold.hpp"

namespace weft {

// By instance of `unfolded`: whether the loss is made of it, in this iteration or in the next (gathers of updated
// parameters that the next forward reads). Updates are not among them: what they wrote stays. A transfer is whole: all
// its members, or none.
std::vector<bool> forward_part(const Plan& plan, const Unfolded& unfolded);

}  // namespace weft
