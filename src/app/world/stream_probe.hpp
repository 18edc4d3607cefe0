// What the links between processes carry, measured in the run that is compared with it.
#pragma once

#include "app/world/bench_ranks.hpp"

namespace weft {

// The links as this run found them.
struct MeasuredLink {
  double goodput = 0;      // bytes a second of a plain TCP stream
  Nanos latency;           // of a small message; of more than two ranks, while all are at work
  Bytes burst;             // that goes through at once after a pause,
  Bandwidth burst_rate{};  // or at this rate
};

// A plain TCP stream from rank 1 to rank 0 for about a second, past the library and past us; answers after pauses, for
// bursts; and small messages between the two through the transport. All ranks call it.
MeasuredLink measure_link(Communicator& communicator, BenchRanks& ranks);

}  // namespace weft
