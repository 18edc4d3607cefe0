// Which arrows a Chrome trace draws. They make a trace large and slow to draw, so there is a bound, and what says most
// comes first.
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

// Messages from rank to rank, then who kept the members of a collective waiting, then the arrows that decided a start,
// then the others; every rank has its share of `most`. Nothing folded.
std::vector<TraceArrow> trace_arrows(const Timeline& timeline, const TraceLanes& lanes, std::int64_t most);

}  // namespace weft
