// Finds which spans of several ranks are one transfer in a trace of our own. The trace says so, and all ranks of a file
// share one clock, so no order, size or group name is compared.
#pragma once

#include <vector>

#include "timeline/trace/rank_match.hpp"

namespace weft {

// All ranks must be of our own traces (TraceSource::weft). Clocks are not moved. O(n log n) in the communications.
RankMatch match_transfers(const std::vector<RankCommunications>& ranks);

// When a rank could have begun the transfer: its queue had reached it, and what it waits for was done.
Nanos ready_to_begin(const DeviceActivity& activity);

}  // namespace weft
