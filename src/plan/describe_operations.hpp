// What a timeline says of a plan's operations, whoever times them: simulation or execution.
#pragma once

#include <vector>

#include "plan/plan.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// By OpId, as they are in every micro-batch: `rank` is the operation's class. `alone`: by OpId, durations without
// interference. Their names go to timeline.names where `names`.
std::vector<TimelineOperation> describe_operations(const Plan& plan, const std::vector<Nanos>& alone, bool names,
                                                   Timeline& timeline);

}  // namespace weft
