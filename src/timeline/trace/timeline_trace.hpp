// Converts a timeline of ours to what a profiler would have recorded, on which `weft analyze` works.
#pragma once

#include <string>
#include <vector>

#include "timeline/timeline.hpp"
#include "timeline/trace/device_trace.hpp"

namespace weft {

// One per rank of the timeline; iterations are its steps.
std::vector<DeviceTrace> traces_of_timeline(const Timeline& timeline, const std::string& file_name);

}  // namespace weft
