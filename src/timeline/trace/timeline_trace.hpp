// A timeline of ours seen as a profiler would have: what `weft analyze` works on, whoever wrote the file.
#pragma once

#include <string>
#include <vector>

#include "timeline/timeline.hpp"
#include "timeline/trace/device_trace.hpp"

namespace weft {

// One per rank of the timeline; iterations are its steps.
std::vector<DeviceTrace> traces_of_timeline(const Timeline& timeline, const std::string& file_name);

}  // namespace weft
