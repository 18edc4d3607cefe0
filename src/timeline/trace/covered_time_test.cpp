// Against a plain array of instants.
#include "timeline/trace/covered_time.hpp"

#include <gtest/gtest.h>

#include <random>

namespace weft {
namespace {

constexpr int kInstants = 60;
using Instants = std::vector<bool>;

std::vector<TimeInterval> random_intervals(std::mt19937& random, Instants& covered) {
  covered.assign(kInstants, false);
  std::vector<TimeInterval> intervals;
  for (auto n = random() % 7; n > 0; --n) {
    const auto begin = static_cast<std::int64_t>(random() % kInstants);
    const std::int64_t end = std::min<std::int64_t>(kInstants, begin + static_cast<std::int64_t>(random() % 12));
    intervals.push_back({Nanos{begin}, Nanos{end}});
    for (std::int64_t t = begin; t < end; ++t) covered[t] = true;
  }
  return intervals;
}

TEST(CoveredTime, CountsEveryInstantOnce) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Instants one, two;
    const CoveredTime a(random_intervals(random, one)), b(random_intervals(random, two));
    const CoveredTime rest = a.without(b);
    for (int from = 0; from <= kInstants; from += 3) {
      for (int to = 0; to <= kInstants; ++to) {
        std::int64_t in_a = 0, in_rest = 0, free = 0;
        for (std::size_t t = from; t < static_cast<std::size_t>(to); ++t) {
          in_a += one[t] ? 1 : 0;
          in_rest += one[t] && !two[t] ? 1 : 0;
          free += one[t] ? 0 : 1;
        }
        ASSERT_EQ(a.within(Nanos{from}, Nanos{to}).value, in_a);
        ASSERT_EQ(rest.within(Nanos{from}, Nanos{to}).value, in_rest);
        std::int64_t in_gaps = 0;
        for (const TimeInterval& gap : a.gaps(Nanos{from}, Nanos{to})) {
          ASSERT_LT(gap.begin, gap.end);
          ASSERT_EQ(a.within(gap.begin, gap.end).value, 0);
          in_gaps += (gap.end - gap.begin).value;
        }
        ASSERT_EQ(in_gaps, free);
      }
    }
  }
}

}  // namespace
}  // namespace weft
