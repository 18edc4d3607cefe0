// What the links between processes carry, measured in the run that is compared with it.
#pragma once

#include "calibrate/links/bench_ranks.hpp"
#include "calibrate/links/measured_links.hpp"

namespace weft {

// A plain TCP stream from rank 1 to rank 0 for about a second, past the library and past us; answers after pauses, for
// bursts; and small messages between the two through the transport. All ranks call it.
MeasuredLink measure_link(Communicator& communicator, BenchRanks& ranks);

}  // namespace weft
