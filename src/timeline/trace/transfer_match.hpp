// Which spans of several ranks are one transfer in a trace of our own, which says so: no order, size or name of a group
// has to be compared, and all ranks of a file share one clock.
#pragma once

#include <vector>

#include "timeline/trace/rank_match.hpp"

namespace weft {

// All ranks must be of our own traces (TraceSource::weft). Clocks are not moved. O(n log n) in the communications.
RankMatch match_transfers(const std::vector<RankCommunications>& ranks);

// When a rank could have begun the transfer: its queue had reached it, and what it waits for was done.
Nanos ready_to_begin(const DeviceActivity& activity);

}  // namespace weft
