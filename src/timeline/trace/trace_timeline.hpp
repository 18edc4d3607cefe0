// Converts traces by others to a timeline, for pictures: a rank for each trace, a queue for each stream, an operation
// for each activity. What a trace does not know (micro-batches, time alone) the timeline lacks.
#pragma once

#include <vector>

#include "timeline/accounting.hpp"
#include "timeline/critical_path.hpp"
#include "timeline/timeline.hpp"
#include "timeline/trace/trace_study.hpp"

namespace weft {

struct DrawnTrace {
  Timeline timeline;  // one period: from the first start to the last end, on the clock of the first rank
  std::vector<ExposedStretch> exposed;
  std::vector<CriticalStep> path;
};

DrawnTrace draw_traces(const TraceStudy& study);

}  // namespace weft
