// One walk backwards over the span index.
#include "timeline/critical_path.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

#include "timeline/span_index.hpp"

namespace weft {
namespace {

std::int32_t last_ending(const std::vector<Span>& spans) {
  const auto order = [](const Span& s) {
    return std::tuple(s.end.value, -static_cast<std::int64_t>(s.operation), s.iteration);
  };
  const auto last =
      std::max_element(spans.begin(), spans.end(), [&](const Span& a, const Span& b) { return order(a) < order(b); });
  return static_cast<std::int32_t>(last - spans.begin());
}

}  // namespace

std::vector<CriticalStep> critical_path(const Timeline& timeline) {
  check_timeline(timeline);
  if (timeline.spans.empty()) return {};
  std::optional<SpanIndex> index;
  if (!timeline.dependency_begin.empty()) index.emplace(timeline);

  std::vector<CriticalStep> path;
  std::int32_t span = last_ending(timeline.spans);
  Nanos covered_from = timeline.spans[static_cast<std::size_t>(span)].end;
  while (span >= 0) {
    const Span& step = timeline.spans[static_cast<std::size_t>(span)];
    // Measured clocks differ: a predecessor may seem to end after its successor began, and covers only what is left.
    const Nanos end = std::min(step.end, covered_from);
    covered_from = std::min(step.start, end);
    path.push_back({span, covered_from, end});
    span = index ? index->last_predecessor(span) : -1;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace weft
