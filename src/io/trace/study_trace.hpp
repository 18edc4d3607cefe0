// Writes a study as a Chrome trace: the activities of every rank by stream and, on tracks of their own, the stretches
// of exposed communication with their reason, and the critical path.
#pragma once

#include <iosfwd>

#include "timeline/trace/trace_study.hpp"

namespace weft {

// A rank is a process, a stream a thread (more where its activities overlap). Ranks have one clock, and the first
// activity starts at 0; "moved_us" of otherData says by how much. Throws Error where the stream fails.
void write_study_trace(std::ostream& out, const TraceStudy& study);

}  // namespace weft
