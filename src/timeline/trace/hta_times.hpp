// Times as Holistic Trace Analysis (HTA) has them. It keeps doubles of microseconds and, where any time stamp of a file
// has a fraction, rounds starts up and ends down; numbers that are to agree with its own must do the same.
#pragma once

#include "timeline/trace/device_trace.hpp"

namespace weft {

Nanos hta_start(const DeviceTrace& trace, Nanos start);
Nanos hta_end(const DeviceTrace& trace, Nanos start, Nanos end);

}  // namespace weft
