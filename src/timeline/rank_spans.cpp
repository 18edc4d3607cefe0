#include "timeline/rank_spans.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

class SpanSorter {
 public:
  SpanSorter(const Timeline& timeline, const Interval& window)
      : timeline_(timeline), window_(window), ranks_(timeline.ranks.size()) {}

  std::vector<RankSpans> sort(const SpanIndex* index) {
    const auto spans = static_cast<std::int32_t>(timeline_.spans.size());
    std::vector<std::vector<Placed>> computing(ranks_.size()), folded_ones(ranks_.size());
    for (std::int32_t i = 0; i < spans; ++i) {
      const Span& span = timeline_.spans[at(i)];
      if (span.end <= window_.begin) continue;
      const TimelineOperation& operation = timeline_.operations[at(span.operation)];
      if (operation.activity == Activity::transfer) {
        add_transfer(span, operation.rank);
      } else {
        computing[at(operation.rank)].push_back({{span.start, span.operation, span.iteration}, i});
      }
    }
    for (std::size_t i = 0; i < timeline_.folded.size(); ++i) {
      if (index->folded_end(i) <= window_.begin) continue;
      const FoldedSpan& folded = timeline_.folded[i];
      const std::int32_t rank = timeline_.operations[at(folded.first)].rank;
      folded_ones[at(rank)].push_back(
          {{folded.start, folded.first, folded.iteration}, spans + static_cast<std::int32_t>(i)});
      if (folded.start < window_.end) add_transfers(folded, rank);
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      // Both are in order as a rule: an iteration's operations are numbered in the order of issue.
      for (auto* list : {&computing[r], &folded_ones[r]}) {
        if (!std::is_sorted(list->begin(), list->end())) std::sort(list->begin(), list->end());
      }
      std::vector<Placed> all;
      all.reserve(computing[r].size() + folded_ones[r].size());
      std::merge(computing[r].begin(), computing[r].end(), folded_ones[r].begin(), folded_ones[r].end(),
                 std::back_inserter(all));
      ranks_[r].computing.reserve(all.size());
      for (const Placed& placed : all) ranks_[r].computing.push_back(placed.second);
      const auto earlier = [](const Span& a, const Span& b) {
        return std::tuple(a.start, a.operation, a.iteration) < std::tuple(b.start, b.operation, b.iteration);
      };
      auto& transfers = ranks_[r].transfers;
      if (!std::is_sorted(transfers.begin(), transfers.end(), earlier)) {
        std::sort(transfers.begin(), transfers.end(), earlier);
      }
    }
    return std::move(ranks_);
  }

 private:
  using Placed = std::pair<std::tuple<Nanos, std::int32_t, std::int32_t>, std::int32_t>;

  void add_transfer(const Span& span, std::int32_t rank) {
    if (span.end > window_.begin && span.start < window_.end) ranks_[at(rank)].transfers.push_back(span);
  }
  void add_transfers(const FoldedSpan& folded, std::int32_t rank) {
    Nanos now = folded.start;
    for (std::int32_t i = folded.first; i < folded.first + folded.count; ++i) {
      const TimelineOperation& operation = timeline_.operations[at(i)];
      const Nanos end = now + operation.alone;
      if (operation.activity == Activity::transfer) add_transfer({i, folded.iteration, now, now, now, end}, rank);
      now = end;
    }
  }

  const Timeline& timeline_;
  Interval window_;
  std::vector<RankSpans> ranks_;
};

}  // namespace

Interval steady_window(const Timeline& timeline) {
  const double length = timeline.period_ns * timeline.periods;
  // 2^53 ns, a hundred days: up to there a double counts every nanosecond.
  if (timeline.periods < 1 || !(timeline.period_ns > 0) || !(length < 9.007e15)) {
    fail("timeline: {} periods of {} ns, at least one, positive and below 2^53 ns in all, is allowed", timeline.periods,
         timeline.period_ns);
  }
  return {timeline.steady_begin, timeline.steady_begin + Nanos{std::llround(length)}};
}

Interval clip(const Span& span, const Interval& window) {
  const Nanos begin = std::clamp(span.start, window.begin, window.end);
  return {begin, std::clamp(span.end, begin, window.end)};
}

std::vector<RankSpans> spans_by_rank(const Timeline& timeline, const Interval& window, const SpanIndex* index) {
  return SpanSorter(timeline, window).sort(index);
}

std::vector<TransferPart> lasting_transfers(const std::vector<Span>& transfers, const Interval& window) {
  std::vector<TransferPart> parts;
  const Span* lasting = nullptr;
  for (const Span& s : transfers) {
    const Interval inside = clip(s, window);
    if (inside.begin == inside.end) continue;
    if (lasting != nullptr && inside.begin < parts.back().end) {
      const Span& l = *lasting;
      if (std::tuple(s.end, -s.operation) < std::tuple(l.end, -l.operation)) continue;
      parts.back().end = inside.begin;
      if (parts.back().begin == parts.back().end) parts.pop_back();
    }
    parts.push_back({s.operation, s.iteration, inside.begin, inside.end});
    lasting = &s;
  }
  return parts;
}

}  // namespace weft
