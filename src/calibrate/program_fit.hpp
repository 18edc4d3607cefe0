// What a device adds to the links when it carries out programs of our own: found from rings of two sizes.
#pragma once

#include "base/units.hpp"
#include "cost/profile.hpp"

namespace weft {

// Programs in a device's streams, beyond what links take (DeviceProfile has the same fields).
struct ProgramOverheads {
  Nanos message_overhead;  // a group of the library's messages starts and ends
  Bandwidth reduce;        // at which what arrived is reduced, and whatever else grows with the bytes; 0: no time
};

struct TimedRing {
  Bytes bytes;  // the whole buffer
  Nanos time;
};

// A ring of an all_reduce over N ranks takes 2 (N - 1) (latency + overhead + S / N / bandwidth) + (N - 1) S / N /
// reduce. The overhead is what a small one shows, the rate of reductions what a large one takes beyond that.
ProgramOverheads fit_rings(const LibraryLink& link, std::int64_t ranks, const TimedRing& small, const TimedRing& large);

}  // namespace weft
