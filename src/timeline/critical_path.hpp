// The chain of executions that decided when the timeline ended.
#pragma once

#include <vector>

#include "timeline/span_index.hpp"
#include "timeline/timeline.hpp"

namespace weft {

struct CriticalStep {
  std::int32_t operation = 0;  // `count` operations from this one on, back to back
  std::int32_t count = 1;      // more than one: part of a folded span, each operation as long as alone
  std::int32_t iteration = 0;
  Nanos begin, end;  // what it covers of the path; gaps between steps are waits that no span explains
  friend bool operator==(const CriticalStep&, const CriticalStep&) = default;
};

// From the last-ending execution backwards along last-finishing predecessors (ties: the lowest operation) to one
// without any; returned first to last. A transfer of several ranks appears as the member that was waited for.
std::vector<CriticalStep> critical_path(const Timeline& timeline);

// The same with an index at hand.
std::vector<CriticalStep> critical_path(const Timeline& timeline, SpanIndex& index);

}  // namespace weft
