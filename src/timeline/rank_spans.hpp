// What each rank did in a window of time, in order: what the accounting sweeps over.
#pragma once

#include <vector>

#include "timeline/span_index.hpp"
#include "timeline/timeline.hpp"

namespace weft {

struct Interval {
  Nanos begin, end;
};

// What one rank did from the window's begin on.
struct RankSpans {
  // Spans, and folded ones (counted from the number of spans on), by start, operation and iteration.
  std::vector<std::int32_t> computing;
  std::vector<Span> transfers;  // within the window, in the same order; those of folded spans too
};

// `index` may be null where nothing is folded.
std::vector<RankSpans> spans_by_rank(const Timeline& timeline, const Interval& window, const SpanIndex* index);

}  // namespace weft
