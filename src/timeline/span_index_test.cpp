// Lookup, transfers as one, and timelines that cannot be.
#include "timeline/span_index.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using test::TestTimeline;

TEST(SpanIndex, FindsSpansInAnyOrderAndSaysWhichAreAbsent) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 1), b = t.compute(r, 1), c = t.compute(r, 1);
  t.run(c, 50, 51, 7);  // span 0
  t.run(a, 40, 41, 7);  // span 1
  t.run(b, 1, 2, 5);    // span 2
  t.run(a, 0, 1, 5);    // span 3
  t.run(c, 2, 3, 5);    // span 4: iteration 5 is complete
  const Timeline timeline = t.build();
  const SpanIndex index(timeline);
  EXPECT_EQ(index.find(a, 5), 3);
  EXPECT_EQ(index.find(b, 5), 2);
  EXPECT_EQ(index.find(c, 5), 4);
  EXPECT_EQ(index.find(a, 7), 1);
  EXPECT_EQ(index.find(b, 7), -1);
  EXPECT_EQ(index.find(c, 7), 0);
  EXPECT_EQ(index.find(a, 6), -1);
  EXPECT_EQ(index.find(a, 4), -1);
  EXPECT_EQ(index.find(a, 8), -1);
}

TEST(SpanIndex, ATransferWaitsForWhatAnyMemberWaitsFor) {
  TestTimeline t;
  const auto r0 = t.rank(), r1 = t.rank();
  const auto early = t.compute(r0, 1), late = t.compute(r1, 1);
  const auto send = t.transfer(r0, TrafficKind::pp, 4), recv = t.transfer(r1, TrafficKind::pp, 4);
  t.wait(send, {early});
  t.wait(recv, {late, send});  // a member waiting for a member says nothing
  t.run(early, 0, 5);
  t.run(late, 0, 9);
  t.run(send, 9, 12);
  t.run(recv, 9, 12);
  const Timeline timeline = t.build();
  SpanIndex index(timeline);
  EXPECT_EQ(index.last_predecessor(send), late);
  EXPECT_EQ(index.last_predecessor(recv), late);
  EXPECT_EQ(index.last_predecessor(early), -1);
  ASSERT_EQ(index.members(recv).size(), 2u);
  EXPECT_EQ(index.members(recv)[0], send);
  EXPECT_EQ(index.members(late).size(), 1u);
}

TEST(SpanIndex, TwoSpansOfOneOperationInOneIterationAreAnError) {
  TestTimeline t;
  const auto a = t.compute(t.rank(), 1);
  t.run(a, 0, 1);
  t.run(a, 1, 2);
  const Timeline timeline = t.build();
  EXPECT_THROW(SpanIndex{timeline}, Error);
}

TEST(SpanIndex, ACycleWithinAnIterationIsAnErrorAndAcrossIterationsIsNot) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 1), b = t.compute(r, 1);
  t.wait(b, {a});
  t.wait(a, {b}, 1);
  const Timeline across = t.build();
  EXPECT_NO_THROW(SpanIndex{across});
  t.wait(a, {b}, 0);
  const Timeline within = t.build();
  EXPECT_THROW(SpanIndex{within}, Error);
}

// Each rank's queue alone is in order, but rank 0 sends before it receives and rank 1 too: crossed rendezvous.
TEST(SpanIndex, ACycleThroughTransfersOfTwoRanksIsAnError) {
  TestTimeline t;
  const auto r0 = t.rank(), r1 = t.rank();
  const auto send0 = t.transfer(r0, TrafficKind::pp, 0), recv0 = t.transfer(r0, TrafficKind::pp, 1);
  const auto send1 = t.transfer(r1, TrafficKind::pp, 1), recv1 = t.transfer(r1, TrafficKind::pp, 0);
  t.wait(recv0, {send0});
  t.wait(recv1, {send1});
  const Timeline timeline = t.build();
  EXPECT_THROW(SpanIndex{timeline}, Error);
}

}  // namespace
}  // namespace weft
