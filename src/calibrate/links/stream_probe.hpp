// Measures what the links between processes carry, in the same run that is compared with it.
#pragma once

#include "calibrate/links/bench_ranks.hpp"
#include "calibrate/links/measured_links.hpp"

namespace weft {

// Sends a plain TCP stream from rank 1 to rank 0 for about a second, without the library or our transport; then answers
// after pauses, for the burst; then small messages through the transport. All ranks call it.
MeasuredLink measure_link(Communicator& communicator, BenchRanks& ranks);

}  // namespace weft
