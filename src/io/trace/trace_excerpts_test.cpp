#include "io/trace/trace_excerpts.hpp"

#include <gtest/gtest.h>

#include <random>

namespace weft {
namespace {

std::vector<Nanos> one_each(std::int64_t count) {
  std::vector<Nanos> starts;
  for (std::int64_t i = 0; i < count; ++i) starts.push_back(Nanos{10 * i});
  return starts;
}

TEST(TraceExcerpts, FewSpansAreAllShown) {
  const TraceExcerpts excerpts = choose_excerpts(one_each(9), Nanos{90}, 9);
  EXPECT_EQ(excerpts.spans_left_out(), 0);
  ASSERT_EQ(excerpts.shown.size(), 1U);
  EXPECT_EQ(excerpts.shown.front().end, Nanos{90});
}

// 100 spans, 9 of them shown: the first 3, the 3 from (100 - 3) / 2 = 48 on, the last 3.
TEST(TraceExcerpts, OfManyTheFirstTheMiddleAndTheLastAreShown) {
  const TraceExcerpts excerpts = choose_excerpts(one_each(100), Nanos{1000}, 9);
  std::vector<std::int64_t> shown;
  for (std::int64_t i = 0; i < 100; ++i) {
    if (excerpts.shows(Nanos{10 * i})) shown.push_back(i);
  }
  EXPECT_EQ(shown, (std::vector<std::int64_t>{0, 1, 2, 48, 49, 50, 97, 98, 99}));
  EXPECT_EQ(excerpts.spans_left_out(), 91);
  ASSERT_EQ(excerpts.left_out.size(), 2U);
  EXPECT_EQ(excerpts.left_out[0].begin, Nanos{30});
  EXPECT_EQ(excerpts.left_out[0].end, Nanos{480});
  EXPECT_EQ(excerpts.left_out[1].spans, 46);
}

TEST(TraceExcerpts, EverySpanIsShownOrCountedAndSpansThatStartTogetherStayTogether) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Nanos> starts(1 + random() % 60);
    for (Nanos& start : starts) start = Nanos{static_cast<std::int64_t>(random() % 20)};
    const auto most = static_cast<std::int64_t>(3 + random() % 30);
    const TraceExcerpts excerpts = choose_excerpts(starts, Nanos{25}, most);
    std::int64_t hidden = 0, shown = 0;
    for (const Nanos start : starts) (excerpts.shows(start) ? shown : hidden) += 1;
    EXPECT_EQ(hidden, excerpts.spans_left_out());
    if (std::ssize(starts) <= most) {
      EXPECT_EQ(hidden, 0);
    }
    std::int64_t in_excerpts = 0;
    for (const TraceExcerpts::Stretch& s : excerpts.shown) in_excerpts += s.spans;
    EXPECT_EQ(shown, in_excerpts);
  }
}

}  // namespace
}  // namespace weft
