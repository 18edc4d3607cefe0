// What a timeline says of a plan's operations, whoever times them: simulation or execution.
#pragma once

#include <vector>

#include "plan/plan.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// Describes every operation, by OpId, as it is in every micro-batch; its `rank` is its class. `alone` holds, by OpId,
// durations without interference. Names are added to timeline.names where `names` is set.
std::vector<TimelineOperation> describe_operations(const Plan& plan, const std::vector<Nanos>& alone, bool names,
                                                   Timeline& timeline);

}  // namespace weft
