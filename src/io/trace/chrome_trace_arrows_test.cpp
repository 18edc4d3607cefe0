// Which arrows a trace has, and between which slices.
#include <gtest/gtest.h>

#include "io/trace/test_chrome_trace.hpp"

namespace weft {
namespace {

// Between queues or ranks only: send -> recv, a -> send and recv -> b in each of two iterations, not a -> a.
TEST(ChromeTrace, ArrowsJoinQueuesAndRanksUpToTheBound) {
  const Timeline timeline = two_stages();
  EXPECT_EQ(events_of(json::parse(trace_text(timeline)), "s").size(), 6u);
  TraceOptions options;
  options.max_flows = 3;
  EXPECT_EQ(events_of(json::parse(trace_text(timeline, options)), "s").size(), 3u);
  EXPECT_EQ(events_of(json::parse(trace_text(timeline, options)), "f").size(), 3u);
  options.max_flows = 0;
  EXPECT_TRUE(events_of(json::parse(trace_text(timeline, options)), "s").empty());
}

TEST(ChromeTrace, AMeasuredTimelineHasAProcessForEachRankAndArrowsFromWhoWasLate) {
  const json trace = json::parse(trace_text(measured_ranks(3)));
  expect_rules(trace);
  EXPECT_EQ(trace.at("otherData").at("timeline"), "measured");
  EXPECT_EQ(processes_of(trace), (std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}}));
  EXPECT_EQ(events_of(trace, "X").size() - 2 * 2, 2u * 3 * 3);  // and what was exposed in two steps on two ranks
  // The first arrows: rank 1 -> rank 0 at the later of both starts, 200, inside both slices.
  const auto starts = events_of(trace, "s"), ends = events_of(trace, "f");
  ASSERT_GE(starts.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const auto arrow = static_cast<std::size_t>(i);
    EXPECT_EQ(starts[arrow].at("pid"), 1);
    EXPECT_EQ(ends[arrow].at("pid"), 0);
    EXPECT_EQ(nanos(starts[arrow].at("ts")), 1200 + 400 * i);
    EXPECT_EQ(nanos(ends[arrow].at("ts")), 1200 + 400 * i);
  }
}

TEST(ChromeTrace, UnknownDependenciesLeaveTheArrowsBetweenRanks) {
  Timeline timeline = measured_ranks(2);
  timeline.dependency_begin.clear();
  timeline.dependencies.clear();
  const json trace = json::parse(trace_text(timeline));
  expect_rules(trace);
  EXPECT_EQ(events_of(trace, "s").size(), 2u);
}

// c waits for a transfer that ends at 10 and for one at 5: the one that decided its start has the only arrow allowed.
TEST(ChromeTrace, DecidingArrowsComeFirst) {
  TestTimeline t;
  const auto r = t.rank();
  const auto early = t.transfer(r, TrafficKind::tp), late = t.transfer(r, TrafficKind::tp), c = t.compute(r, 5);
  t.wait(c, {early, late});
  t.run(early, 0, 5);
  t.run(late, 5, 10);
  t.run(c, 10, 15);
  t.window(0, 15);
  TraceOptions options;
  options.max_flows = 1;
  const auto starts = events_of(json::parse(trace_text(t.build(), options)), "s");
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(nanos(starts[0].at("ts")), 9);
}

}  // namespace
}  // namespace weft
