#include "timeline/trace/covered_time.hpp"

#include <algorithm>

namespace weft {

CoveredTime::CoveredTime(std::vector<TimeInterval> intervals) {
  const auto by_begin = [](const TimeInterval& a, const TimeInterval& b) { return a.begin < b.begin; };
  if (!std::is_sorted(intervals.begin(), intervals.end(), by_begin)) {
    std::sort(intervals.begin(), intervals.end(), by_begin);
  }
  for (const TimeInterval& interval : intervals) {
    if (interval.end <= interval.begin) continue;
    if (!intervals_.empty() && interval.begin <= intervals_.back().end) {
      intervals_.back().end = std::max(intervals_.back().end, interval.end);
    } else {
      intervals_.push_back(interval);
    }
  }
  before_.reserve(intervals_.size());
  Nanos sum{0};
  for (const TimeInterval& interval : intervals_) before_.push_back(sum += interval.end - interval.begin);
}

std::size_t CoveredTime::first_ending_after(Nanos t) const {
  const auto found = std::upper_bound(intervals_.begin(), intervals_.end(), t,
                                      [](Nanos time, const TimeInterval& interval) { return time < interval.end; });
  return static_cast<std::size_t>(found - intervals_.begin());
}

Nanos CoveredTime::until(Nanos t) const {
  const std::size_t i = first_ending_after(t);
  const Nanos whole = i == 0 ? Nanos{0} : before_[i - 1];
  if (i == intervals_.size() || intervals_[i].begin >= t) return whole;
  return whole + (t - intervals_[i].begin);
}

Nanos CoveredTime::within(Nanos begin, Nanos end) const {
  if (end <= begin) return {0};
  return until(end) - until(begin);
}

std::vector<TimeInterval> CoveredTime::gaps(Nanos begin, Nanos end) const {
  std::vector<TimeInterval> result;
  for (std::size_t i = first_ending_after(begin); i < intervals_.size() && intervals_[i].begin < end; ++i) {
    if (begin < intervals_[i].begin) result.push_back({begin, intervals_[i].begin});
    begin = intervals_[i].end;
  }
  if (begin < end) result.push_back({begin, end});
  return result;
}

CoveredTime CoveredTime::without(const CoveredTime& other) const {
  std::vector<TimeInterval> rest;
  for (const TimeInterval& interval : intervals_) {
    const std::vector<TimeInterval> parts = other.gaps(interval.begin, interval.end);
    rest.insert(rest.end(), parts.begin(), parts.end());
  }
  return CoveredTime(std::move(rest));
}

}  // namespace weft
