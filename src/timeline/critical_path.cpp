// One walk backwards over the span index.
#include "timeline/critical_path.hpp"

#include <algorithm>
#include <tuple>

namespace weft {
namespace {

// Where an execution stands in "the last to end; ties: the lowest operation, then the latest iteration".
auto lateness(const Span& s) {
  return std::tuple(s.end.value, -static_cast<std::int64_t>(s.operation), s.iteration);
}

const Span* last_ending(const std::vector<Span>& spans) {
  const auto last = std::max_element(spans.begin(), spans.end(),
                                     [](const Span& a, const Span& b) { return lateness(a) < lateness(b); });
  return last == spans.end() ? nullptr : &*last;
}

std::int32_t last_ending(const Timeline& timeline, const SpanIndex& index) {
  std::int32_t last = -1;
  if (const Span* span = last_ending(timeline.spans)) last = static_cast<std::int32_t>(span - timeline.spans.data());
  for (std::size_t i = 0; i < timeline.folded.size(); ++i) {
    const std::int32_t execution = index.folded_begin(i) + timeline.folded[i].count - 1;
    if (last < 0 || lateness(index[execution]) > lateness(index[last])) last = execution;
  }
  return last;
}

}  // namespace

std::vector<CriticalStep> critical_path(const Timeline& timeline, SpanIndex& index) {
  std::vector<CriticalStep> path;
  std::int32_t execution = last_ending(timeline, index);
  if (execution < 0) return path;
  Nanos covered_from = index[execution].end;
  while (execution >= 0) {
    const SpanIndex::Place place = index.place(execution);
    const std::int32_t before = execution - place.first;  // operations of the same folded span
    // Measured clocks differ: a predecessor may seem to end after its successor began, and covers only what is left.
    const Nanos end = std::min(place.span.end, covered_from);
    covered_from = std::min(place.first_start, end);
    path.push_back({place.span.operation - before, before + 1, place.span.iteration, covered_from, end});
    execution = index.last_predecessor(place.first);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<CriticalStep> critical_path(const Timeline& timeline) {
  check_timeline(timeline);
  if (!timeline.dependency_begin.empty()) {
    SpanIndex index(timeline);
    return critical_path(timeline, index);
  }
  if (const Span* last = last_ending(timeline.spans)) {
    return {{last->operation, 1, last->iteration, last->start, last->end}};
  }
  return {};
}

}  // namespace weft
