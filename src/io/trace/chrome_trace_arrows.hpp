// Chooses the arrows of a Chrome trace. They make it large and slow to draw, so their number is bounded, and the most
// important come first.
#pragma once

#include <cstdint>
#include <vector>

#include "io/trace/chrome_trace_lanes.hpp"
#include "timeline/timeline.hpp"

namespace weft {

struct TraceArrow {
  std::int32_t from = 0, to = 0;  // spans
  Nanos leaves, arrives;          // each within its slice, as Perfetto wants it
};

// Messages between ranks come first, then what kept the members of a collective waiting, then arrows that decided a
// start, then the others; every rank has its share of `most`. The timeline must not have folded spans.
std::vector<TraceArrow> trace_arrows(const Timeline& timeline, const TraceLanes& lanes, std::int64_t most);

}  // namespace weft
