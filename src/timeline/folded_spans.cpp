#include "timeline/folded_spans.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

// When each operation of an iteration ended; those that are unknown at the beginning of time.
constexpr Nanos kUnknown{std::numeric_limits<std::int64_t>::min()};
using Ends = std::map<std::int32_t, std::vector<Nanos>>;

Ends find_ends(const Timeline& timeline) {
  Ends ends;
  const auto of = [&](std::int32_t iteration) -> std::vector<Nanos>& {
    auto& known = ends[iteration];
    if (known.empty()) known.assign(timeline.operations.size(), kUnknown);
    return known;
  };
  for (const Span& span : timeline.spans) of(span.iteration)[at(span.operation)] = span.end;
  for (const FoldedSpan& folded : timeline.folded) {
    std::vector<Nanos>& known = of(folded.iteration);
    Nanos now = folded.start;
    for (std::int32_t i = folded.first; i < folded.first + folded.count; ++i) {
      known[at(i)] = now += timeline.operations[at(i)].alone;
    }
  }
  return ends;
}

void add_waits(const Timeline& timeline, const Ends& ends, Span& span) {
  span.issued = span.ready = {};
  for (std::int32_t d = timeline.dependency_begin[at(span.operation)];
       d < timeline.dependency_begin[at(span.operation) + 1]; ++d) {
    const Dependency& dependency = timeline.dependencies[at(d)];
    const auto known = ends.find(span.iteration - dependency.distance);
    if (known == ends.end()) continue;
    Nanos& moment = dependency.order ? span.issued : span.ready;
    moment = std::max(moment, known->second[at(dependency.operation)]);
  }
}

}  // namespace

void add_waits(Timeline& timeline) {
  const Ends ends = find_ends(timeline);
  for (Span& span : timeline.spans) add_waits(timeline, ends, span);
}

Timeline expanded(const Timeline& timeline, std::int32_t first_iteration, std::int32_t last_iteration) {
  Timeline plain = timeline;
  plain.folded.clear();
  const auto wanted = [&](std::int32_t iteration) {
    return first_iteration <= iteration && iteration <= last_iteration;
  };
  std::erase_if(plain.spans, [&](const Span& span) { return !wanted(span.iteration); });
  if (timeline.folded.empty()) return plain;
  for (const FoldedSpan& folded : timeline.folded) {
    if (!wanted(folded.iteration)) continue;
    Nanos now = folded.start;
    for (std::int32_t i = folded.first; i < folded.first + folded.count; ++i) {
      const Nanos end = now + timeline.operations[at(i)].alone;
      plain.spans.push_back({i, folded.iteration, now, now, now, end});
      now = end;
    }
  }
  const Ends ends = find_ends(timeline);
  for (Span& span : plain.spans) add_waits(timeline, ends, span);
  std::sort(plain.spans.begin(), plain.spans.end(), [](const Span& a, const Span& b) {
    return std::tuple(a.iteration, a.operation) < std::tuple(b.iteration, b.operation);
  });
  return plain;
}

}  // namespace weft
