#include "exec/step_glance.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace weft {

StepGlancer::StepGlancer(std::vector<std::int32_t> computes, std::vector<std::int32_t> transfers)
    : computes_(std::move(computes)), transfers_(std::move(transfers)) {
  WEFT_CHECK(!computes_.empty());
  intervals_.reserve(transfers_.size());
}

std::int64_t StepGlancer::begin_of(std::span<const RankSpan> step) const {
  return step[computes_.front()].start;
}

StepGlance StepGlancer::look(std::span<const RankSpan> step, std::span<const RankSpan> next, std::int64_t end) {
  StepGlance glance;
  glance.nanos = end - begin_of(step);
  merge_transfers(step);
  std::int64_t communicates = 0, hidden = 0;
  for (const auto& [start, stop] : intervals_) communicates += stop - start;
  for (const std::span<const RankSpan> spans : {step, next}) {
    if (spans.empty()) continue;
    for (const std::int32_t i : computes_) hidden += transfer_time_within(spans[i]);
  }
  glance.hidden = communicates == 0 ? std::numeric_limits<double>::quiet_NaN()
                                    : static_cast<double>(hidden) / static_cast<double>(communicates);
  return glance;
}

void StepGlancer::merge_transfers(std::span<const RankSpan> step) {
  intervals_.clear();
  for (const std::int32_t i : transfers_) {
    const RankSpan& span = step[i];
    if (span.end > span.start) intervals_.emplace_back(span.start, span.end);
  }
  if (intervals_.empty()) return;
  std::sort(intervals_.begin(), intervals_.end());
  std::size_t last = 0;
  for (const auto& interval : intervals_) {
    if (interval.first <= intervals_[last].second) {
      intervals_[last].second = std::max(intervals_[last].second, interval.second);
    } else {
      intervals_[++last] = interval;
    }
  }
  intervals_.resize(last + 1);
}

std::int64_t StepGlancer::transfer_time_within(const RankSpan& span) const {
  std::int64_t sum = 0;
  const auto ends_before = [](const auto& interval, std::int64_t time) { return interval.second <= time; };
  for (auto i = std::lower_bound(intervals_.begin(), intervals_.end(), span.start, ends_before);
       i != intervals_.end() && i->first < span.end; ++i) {
    sum += std::min(i->second, span.end) - std::max(i->first, span.start);
  }
  return sum;
}

}  // namespace weft
