// Paths read off small timelines.
#include "timeline/critical_path.hpp"

#include <gtest/gtest.h>

#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using test::TestTimeline;

void expect_path(const std::vector<CriticalStep>& path, const std::vector<CriticalStep>& expected) {
  ASSERT_EQ(path.size(), expected.size());
  for (std::size_t i = 0; i < path.size(); ++i) EXPECT_EQ(path[i], expected[i]) << "step " << i;
}
CriticalStep step(std::int32_t operation, std::int64_t begin, std::int64_t end, std::int32_t iteration = 0) {
  return {operation, 1, iteration, Nanos{begin}, Nanos{end}};
}

//           0    10   20   30
//  rank 0   [a 10)[b 20)
//  transfer       [t 18)       (started at 10, both ranks)
//  rank 1   [c 4)      [d 20,30)   d waits for c and t
TEST(CriticalPath, GoesThroughTheTransferThatTheLastOperationWaitedFor) {
  TestTimeline t;
  const auto r0 = t.rank(), r1 = t.rank();
  const auto a = t.compute(r0, 10), b = t.compute(r0, 10);
  const auto send = t.transfer(r0, TrafficKind::pp, 0), recv = t.transfer(r1, TrafficKind::pp, 0);
  const auto c = t.compute(r1, 4), d = t.compute(r1, 10);
  t.wait(b, {a});
  t.wait(send, {a});
  t.wait(d, {c, recv});
  t.run(a, 0, 10);
  t.run(b, 10, 20);
  t.run(send, 10, 18);
  t.run(recv, 10, 18);
  t.run(c, 0, 4);
  t.run(d, 20, 30);
  // recv's predecessor is send's: a. The wait [18, 20) is covered by no step.
  expect_path(critical_path(t.build()), {step(a, 0, 10), step(recv, 10, 18), step(d, 20, 30)});
}

TEST(CriticalPath, TiesGoToTheLowestOperationAndIterationsAreCrossed) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.compute(r, 10, 2), c = t.compute(r, 5);
  t.wait(c, {b, a});  // both end at 10, and at 25
  t.wait(a, {c}, 1);
  t.wait(b, {c}, 1);
  t.run(a, 0, 10, 0);   // span 0
  t.run(b, 0, 10, 0);   // span 1
  t.run(c, 10, 15, 0);  // span 2
  t.run(a, 15, 25, 1);  // span 3
  t.run(b, 15, 25, 1);  // span 4
  t.run(c, 25, 30, 1);  // span 5
  expect_path(critical_path(t.build()), {step(a, 0, 10), step(c, 10, 15), step(a, 15, 25, 1), step(c, 25, 30, 1)});
}

// Measured on two clocks: a seems to end at 12, after b began at 10.
TEST(CriticalPath, StepsNeverOverlap) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.compute(r, 10);
  t.wait(b, {a});
  t.run(a, 2, 12);
  t.run(b, 10, 20);
  expect_path(critical_path(t.build()), {step(a, 2, 10), step(b, 10, 20)});
}

TEST(CriticalPath, IsTheLastSpanWhereDependenciesAreUnknownAndEmptyWithoutSpans) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.compute(r, 10);
  EXPECT_TRUE(critical_path(t.build()).empty());
  t.run(a, 0, 10);
  t.run(b, 10, 20);
  expect_path(critical_path(t.build_without_dependencies()), {step(b, 10, 20)});
}

}  // namespace
}  // namespace weft
