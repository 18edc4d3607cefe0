// Finds the part of a plan's step that a loss without training needs, which validation runs.
#pragma once

#include <vector>

#include "plan/whole_plan.hpp"

namespace weft {

struct ForwardPart {
  // Whether the loss is made of it, in this iteration or in the next (gathers of
  // updated parameters that the next forward reads). Updates are not among them: what they wrote stays. A transfer is
  // whole: all its members, or none.
  IdVector<InstanceId, bool> needed;
  // What each of these waits for in addition: who used the memory before that it writes. In a whole step others may see
  // to that: a gradient that has come says that the next stage has taken the activations.
  IdVector<InstanceId, std::vector<Edge>> waits;
};

ForwardPart forward_part(const WholePlan& whole);

}  // namespace weft
