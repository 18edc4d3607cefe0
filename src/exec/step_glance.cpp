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
  return step[static_cast<std::size_t>(computes_.front())].start;
}

StepGlance StepGlancer::look(std::span<const RankSpan> step, std::int64_t end) {
  StepGlance glance;
  glance.nanos = end - begin_of(step);
  std::int64_t busy = 0;
  for (const std::int32_t i : computes_) {
    const RankSpan& span = step[static_cast<std::size_t>(i)];
    busy += span.end - span.start;
  }
  const std::int64_t communicates = communication(step);
  glance.hidden =
      communicates == 0
          ? std::numeric_limits<double>::quiet_NaN()
          : std::clamp(1 - static_cast<double>(glance.nanos - busy) / static_cast<double>(communicates), 0.0, 1.0);
  return glance;
}

// The time in which at least one transfer is under way.
std::int64_t StepGlancer::communication(std::span<const RankSpan> step) {
  intervals_.clear();
  for (const std::int32_t i : transfers_) {
    const RankSpan& span = step[static_cast<std::size_t>(i)];
    if (span.end > span.start) intervals_.emplace_back(span.start, span.end);
  }
  std::sort(intervals_.begin(), intervals_.end());
  std::int64_t sum = 0, covered = std::numeric_limits<std::int64_t>::min();
  for (const auto& [start, end] : intervals_) {
    if (end <= covered) continue;
    sum += end - std::max(start, covered);
    covered = end;
  }
  return sum;
}

}  // namespace weft
