// What each rank did in a window of time, in order: what the accounting sweeps over.
#pragma once

#include <vector>

#include "timeline/span_index.hpp"
#include "timeline/timeline.hpp"

namespace weft {

struct Interval {
  Nanos begin, end;
};

// What the accounting measures. Throws Error without a period.
Interval steady_window(const Timeline& timeline);

// The part of a span that lies within the window.
Interval clip(const Span& span, const Interval& window);

// What one rank did from the window's begin on.
struct RankSpans {
  // Spans, and folded ones (counted from the number of spans on), by start, operation and iteration.
  std::vector<std::int32_t> computing;
  std::vector<Span> transfers;  // within the window, in the same order; those of folded spans too
};

// `index` may be null where nothing is folded.
std::vector<RankSpans> spans_by_rank(const Timeline& timeline, const Interval& window, const SpanIndex* index);

// Part of one execution of a transfer.
struct TransferPart {
  std::int32_t operation = 0;
  std::int32_t iteration = 0;
  Nanos begin, end;
};

// At each instant of the window the transfer that ends last (ties: the lowest operation), as disjoint stretches,
// ascending. `transfers`: as RankSpans has them.
std::vector<TransferPart> lasting_transfers(const std::vector<Span>& transfers, const Interval& window);

}  // namespace weft
