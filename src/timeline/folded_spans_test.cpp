// A folded timeline by hand, written out, accounted and walked.
#include "timeline/folded_spans.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "timeline/accounting.hpp"
#include "timeline/critical_path.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using test::TestTimeline;

// Rank 0: a 10, tp 5, b 20 back to back from 100 (folded), then c from 140, which waited for a message of rank 1
// (compute d 0 to 130, message 130 to 140).
//            100  110  115        135  140    150
//  rank 0    [a   [tp  [b         )    [c     )
//  rank 1  [d                  130)[message)
Timeline by_hand(double begin, double length) {
  TestTimeline t;
  const auto r0 = t.rank(), r1 = t.rank();
  const auto a = t.compute(r0, 10), tp = t.transfer(r0, TrafficKind::tp), b = t.compute(r0, 20);
  const auto c = t.compute(r0, 10), receive = t.transfer(r0, TrafficKind::pp, 0);
  const auto d = t.compute(r1, 130), send = t.transfer(r1, TrafficKind::pp, 0);
  t.wait(tp, {a});
  t.wait(b, {tp, a});
  t.wait(c, {b, receive});
  t.wait(send, {d});
  t.wait(a, {c}, 1);
  t.run(c, 140, 150);
  t.run(receive, 130, 140);
  t.run(d, 0, 130);
  t.run(send, 130, 140);
  t.window(static_cast<std::int64_t>(begin), length);
  Timeline timeline = t.build();
  timeline.operations[tp].alone = Nanos{5};
  timeline.folded.push_back({a, 3, 0, Nanos{100}});
  return timeline;
}

TEST(FoldedSpans, AreWrittenOutBackToBack) {
  Timeline timeline = by_hand(0, 150);
  timeline.dependencies[1].order = true;  // the transfer is issued when a ends
  const Timeline plain = expanded(timeline);
  ASSERT_EQ(plain.spans.size(), 7u);
  EXPECT_TRUE(plain.folded.empty());
  const std::int64_t starts[] = {100, 110, 115, 140, 130, 0, 130}, ends[] = {110, 115, 135, 150, 140, 130, 140};
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(plain.spans[i].operation, static_cast<std::int32_t>(i));
    EXPECT_EQ(plain.spans[i].start.value, starts[i]);
    EXPECT_EQ(plain.spans[i].end.value, ends[i]);
  }
  EXPECT_EQ(plain.spans[1].issued, Nanos{110});
  EXPECT_EQ(plain.spans[1].ready, Nanos{0});
  EXPECT_EQ(plain.spans[2].ready, Nanos{115});  // waits for the transfer and, earlier, for a
  EXPECT_EQ(plain.spans[3].ready, Nanos{140});
  EXPECT_TRUE(expanded(timeline, 1, 5).spans.empty());
}

TEST(FoldedSpans, AreAccountedWithinTheWindow) {
  // Rank 0 in [0, 150): compute 10 + 20 + 10, exposed tp 5 and pp 5 (135 to 140), idle before a (its predecessor is of
  // an iteration that is not there).
  const Accounting whole = account(by_hand(0, 150));
  const auto pp = static_cast<std::size_t>(TrafficKind::pp), tp = static_cast<std::size_t>(TrafficKind::tp);
  EXPECT_DOUBLE_EQ(whole.ranks[0].compute_s, 40e-9);
  EXPECT_DOUBLE_EQ(whole.ranks[0].exposed_by[tp], 5e-9);
  EXPECT_DOUBLE_EQ(whole.ranks[0].exposed_by[pp], 5e-9);
  EXPECT_DOUBLE_EQ(whole.ranks[0].idle_s, 100e-9);
  EXPECT_DOUBLE_EQ(whole.ranks[0].comm_s, 15e-9);
  // [112, 120): 3 of the transfer, 5 of b. [104, 113): 6 of a, 3 of the transfer.
  const Accounting inner = account(by_hand(112, 8)), front = account(by_hand(104, 9));
  EXPECT_DOUBLE_EQ(inner.ranks[0].exposed_by[tp], 3e-9);
  EXPECT_DOUBLE_EQ(inner.ranks[0].compute_s, 5e-9);
  EXPECT_DOUBLE_EQ(front.ranks[0].exposed_by[tp], 3e-9);
  EXPECT_DOUBLE_EQ(front.ranks[0].compute_s, 6e-9);
  // c waits for b until 135, which another rank would see as a bubble; in [136, 150) only for the message.
  EXPECT_DOUBLE_EQ(account(by_hand(136, 14)).ranks[0].exposed_by[pp], 4e-9);
}

TEST(FoldedSpans, AreOneStepOfTheCriticalPath) {
  Timeline timeline = by_hand(0, 150);
  timeline.spans[1].end = timeline.spans[3].end = Nanos{134};  // the message now ends before b
  const std::vector<CriticalStep> path = critical_path(timeline);
  ASSERT_EQ(path.size(), 2u);
  EXPECT_EQ(path[0], (CriticalStep{0, 3, 0, Nanos{100}, Nanos{135}}));
  EXPECT_EQ(path[1], (CriticalStep{3, 1, 0, Nanos{140}, Nanos{150}}));
}

TEST(FoldedSpans, OutOfRangeTwiceOrWithoutDependenciesAreErrors) {
  Timeline timeline = by_hand(0, 150);
  EXPECT_NO_THROW(account(timeline));
  timeline.folded.front().count = 8;
  EXPECT_THROW(check_timeline(timeline), Error);
  timeline.folded.front().count = 4;  // c has a span of its own
  EXPECT_THROW(account(timeline), Error);
  timeline = by_hand(0, 150);
  timeline.dependency_begin.clear();
  timeline.dependencies.clear();
  EXPECT_THROW(check_timeline(timeline), Error);
}

}  // namespace
}  // namespace weft
