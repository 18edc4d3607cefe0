// The chain of spans that decided when the timeline ended.
#pragma once

#include <vector>

#include "timeline/timeline.hpp"

namespace weft {

struct CriticalStep {
  std::int32_t span = 0;  // index into Timeline::spans
  Nanos begin, end;       // what it covers of the path; gaps between steps are waits that no span explains
};

// From the last-ending span backwards along last-finishing predecessors (ties: the lowest operation) to one without
// any; returned first to last. A transfer of several ranks appears as the member that was waited for.
std::vector<CriticalStep> critical_path(const Timeline& timeline);

}  // namespace weft
