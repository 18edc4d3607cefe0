// A set of instants as disjoint intervals, for many queries of how much of it lies between two times.
#pragma once

#include <cstddef>
#include <vector>

#include "base/units.hpp"

namespace weft {

struct TimeInterval {
  Nanos begin, end;  // begin < end
  friend bool operator==(const TimeInterval&, const TimeInterval&) = default;
};

class CoveredTime {
 public:
  CoveredTime() = default;
  // The union of the intervals, which may come in any order, overlap and be empty. O(n log n); O(n) where sorted.
  explicit CoveredTime(std::vector<TimeInterval> intervals);

  const std::vector<TimeInterval>& intervals() const { return intervals_; }
  Nanos total() const { return before_.empty() ? Nanos{0} : before_.back(); }
  // O(log n); 0 where `end` does not come after `begin`.
  Nanos within(Nanos begin, Nanos end) const;
  // Returns the parts of [begin, end) that it does not cover, in order.
  std::vector<TimeInterval> gaps(Nanos begin, Nanos end) const;
  CoveredTime without(const CoveredTime& other) const;

 private:
  std::size_t first_ending_after(Nanos t) const;
  // Covered time before t.
  Nanos until(Nanos t) const;

  std::vector<TimeInterval> intervals_;  // ascending, apart
  std::vector<Nanos> before_;            // covered up to the end of interval i
};

}  // namespace weft
