// One small timeline for each term, drawn above its test; the expected nanoseconds are read off the drawing.
#include "timeline/accounting.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "timeline/test_accounting.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using test::TestTimeline;

//          0         10        20
//  compute [a         )[b       )      nothing else: all of the step is compute
TEST(Accounting, ComputeAloneFillsTheStep) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.compute(r, 10);
  t.wait(b, {a});
  t.run(a, 0, 10);
  t.run(b, 10, 20);
  t.window(0, 20);
  const Accounting accounting = account(t.build());
  expect_terms(accounting.ranks[0], {.compute = 20});
  EXPECT_NEAR(accounting.ranks[0].step_s, 20e-9, 1e-18);
  EXPECT_TRUE(std::isnan(hidden_pct(accounting.ranks[0])));
  EXPECT_TRUE(accounting.exposed.empty());
}

//          0         10        20        30
//  compute [a (alone 10)       )[b        )    a was stretched by 10; b, faster than its profile of 12, by nothing
TEST(Accounting, SlowdownIsTimeBeyondTheProfileAndNeverNegative) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.compute(r, 12);
  t.run(a, 0, 20);
  t.run(b, 20, 30);
  t.window(0, 30);
  expect_terms(account(t.build()).ranks[0], {.compute = 20, .slowdown = 10});
}

//          0    5    10        20
//  compute [a (0..20, alone 10) )      the window begins at 5: 15 of 20 remain, and 7.5 of the 10 alone
TEST(Accounting, AClippedSpanKeepsItsShareOfTheProfile) {
  TestTimeline t;
  const auto a = t.compute(t.rank(), 10);
  t.run(a, 0, 20);
  t.window(5, 15);
  expect_terms(account(t.build()).ranks[0], {.compute = 7.5, .slowdown = 7.5});
}

//          0         10        20        30
//  compute [a         )                  [b         )
//  comm               [gather            )
TEST(Accounting, ATransferWaitedForIsExposedByItsKind) {
  for (int k = 0; k < kTrafficKinds; ++k) {
    const auto kind = static_cast<TrafficKind>(k);
    TestTimeline t;
    const auto r = t.rank();
    const auto a = t.compute(r, 10), gather = t.transfer(r, kind), b = t.compute(r, 10);
    t.wait(gather, {a});
    t.wait(b, {a, gather});
    t.run(a, 0, 10);
    t.run(gather, 10, 30);
    t.run(b, 30, 40);
    t.window(0, 40);
    const Accounting accounting = account(t.build());
    expect_terms(accounting.ranks[0], {.compute = 20, .exposed = 20, .comm = 20});
    EXPECT_NEAR(exposed_ns(accounting.ranks[0], kind), 20, 1e-6);
    ASSERT_EQ(accounting.exposed.size(), 1u);
    EXPECT_EQ(accounting.exposed[0].kind, kind);
    EXPECT_EQ(accounting.exposed[0].begin, Nanos{10});
    EXPECT_EQ(accounting.exposed[0].end, Nanos{30});
    EXPECT_NEAR(hidden_pct(accounting.ranks[0]), 0, 1e-9);
  }
}

//          0         10        20        30        40
//  compute [a         )[b                 )    [c  )
//  comm               [reduce                  )      25 long: 20 behind b, the 5 in [30, 35) are seen
TEST(Accounting, HiddenPercentIsTheShareOfCommunicationBehindCompute) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.compute(r, 20), c = t.compute(r, 5);
  const auto reduce = t.transfer(r, TrafficKind::dp_grad);
  t.wait(reduce, {a});
  t.wait(b, {a});
  t.wait(c, {b, reduce});
  t.run(a, 0, 10);
  t.run(b, 10, 30);
  t.run(reduce, 10, 35);
  t.run(c, 35, 40);
  t.window(0, 40);
  const Accounting accounting = account(t.build());
  expect_terms(accounting.ranks[0], {.compute = 35, .exposed = 5, .comm = 25});
  EXPECT_NEAR(hidden_pct(accounting.ranks[0]), 80, 1e-9);  // 1 - 5 / 25
}

//           0         10        20        30
//  comm 1   [tp gather          )                 two transfers in a chain: c waited for the second,
//  comm 2                       [ep a2a   )       the second for the first
//  compute                                [c  )
TEST(Accounting, AChainOfTransfersIsExposedPieceByPiece) {
  TestTimeline t;
  const auto r = t.rank();
  const auto first = t.transfer(r, TrafficKind::tp), second = t.transfer(r, TrafficKind::ep);
  const auto c = t.compute(r, 10);
  t.wait(second, {first});
  t.wait(c, {second});
  t.run(first, 0, 20);
  t.run(second, 20, 30);
  t.run(c, 30, 40);
  t.window(0, 40);
  const Accounting accounting = account(t.build());
  expect_terms(accounting.ranks[0], {.compute = 10, .exposed = 30, .comm = 30});
  EXPECT_NEAR(exposed_ns(accounting.ranks[0], TrafficKind::tp), 20, 1e-6);
  EXPECT_NEAR(exposed_ns(accounting.ranks[0], TrafficKind::ep), 10, 1e-6);
  ASSERT_EQ(accounting.exposed.size(), 2u);
  EXPECT_EQ(accounting.exposed[0].kind, TrafficKind::tp);
  EXPECT_EQ(accounting.exposed[1].kind, TrafficKind::ep);
}

//           0         10        20        30        40
//  rank 0   [a                   )                          a: 20
//  transfer                      [send/recv )               bytes move in [20, 32)
//  rank 1   [c  )                           [d  )           d waits for the receive
//
// Rank 1: [0,5) compute; [5,20) rank 0 still computes: bubble; [20,32) bytes: exposed; [32,40) compute.
// Rank 0: [0,20) compute; nothing follows, its own transfer runs until 32: exposed; then idle.
TEST(Accounting, ALatePeerIsABubbleAndOnlyMovingBytesAreExposed) {
  TestTimeline t;
  const auto r0 = t.rank(), r1 = t.rank();
  const auto a = t.compute(r0, 20), c = t.compute(r1, 5), d = t.compute(r1, 8);
  const auto send = t.transfer(r0, TrafficKind::pp, 0), recv = t.transfer(r1, TrafficKind::pp, 0);
  t.wait(send, {a});
  t.wait(recv, {c});
  t.wait(d, {recv});
  t.run(a, 0, 20);
  t.run(c, 0, 5);
  t.run(d, 32, 40);
  t.run(send, 20, 32);
  t.run(recv, 20, 32);
  t.window(0, 40);
  const Accounting accounting = account(t.build());
  expect_terms(accounting.ranks[1], {.compute = 13, .exposed = 12, .bubble = 15, .comm = 12});
  expect_terms(accounting.ranks[0], {.compute = 20, .exposed = 12, .idle = 8, .comm = 12});
}

//           0         10        20        30
//  rank 0   [a         )
//  0 <-> 1             [x        )                 a transfer in which rank 2 has no part
//  1 <-> 2                       [y   )            one in which it has: reached through rank 1's member
//  rank 2                             [d     )
//
// d waits for rank 1's member of y only; y is rank 2's transfer all the same, and of the kind its own member says.
TEST(Accounting, ATransferOfOthersIsABubbleAndOneReachedThroughAPeersMemberIsNot) {
  TestTimeline t;
  const auto r0 = t.rank(), r1 = t.rank(), r2 = t.rank();
  const auto a = t.compute(r0, 10);
  const auto x0 = t.transfer(r0, TrafficKind::pp, 0), x1 = t.transfer(r1, TrafficKind::pp, 0);
  const auto y1 = t.transfer(r1, TrafficKind::other, 1), y2 = t.transfer(r2, TrafficKind::cp, 1);
  const auto d = t.compute(r2, 5);
  t.wait(x0, {a});
  t.wait(y1, {x1});
  t.wait(d, {y1});
  t.run(a, 0, 10);
  t.run(x0, 10, 20);
  t.run(x1, 10, 20);
  t.run(y1, 20, 25);
  t.run(y2, 20, 25);
  t.run(d, 25, 30);
  t.window(0, 30);
  const Accounting accounting = account(t.build());
  expect_terms(accounting.ranks[2], {.compute = 5, .exposed = 5, .bubble = 20, .comm = 5});
  EXPECT_NEAR(exposed_ns(accounting.ranks[2], TrafficKind::cp), 5, 1e-6);
}

//          0         10        20        30
//  compute [a         )         [b         )     b waits for a only and starts 10 late: nothing explains it
// Over sockets a rank may be done with its part while the peer still receives. Rank 0's parts: 10..20 and 25..40; at
// 20..25 the second waits for the peer's end of the first: a late peer. Nothing of its communication is hidden, and no
// more than all of it is exposed.
TEST(Accounting, HidesNothingWhereARankWaitsForItsPeersEndOfATransfer) {
  TestTimeline t;
  const auto r0 = t.rank(), r1 = t.rank();
  const auto a = t.compute(r0, 10), b = t.compute(r0, 10), c = t.compute(r1, 10), d = t.compute(r1, 10);
  const auto x0 = t.transfer(r0, TrafficKind::dp_grad, 0), x1 = t.transfer(r1, TrafficKind::dp_grad, 0);
  const auto y0 = t.transfer(r0, TrafficKind::dp_grad, 1), y1 = t.transfer(r1, TrafficKind::dp_grad, 1);
  t.wait(x0, {a});
  t.wait(x1, {c});
  t.wait(y0, {x0});
  t.wait(y1, {x1});
  t.wait(b, {y0});
  t.wait(d, {y1});
  t.run(a, 0, 10);
  t.run(b, 40, 50);
  t.run(c, 0, 10);
  t.run(d, 40, 50);
  t.run(x0, 10, 20);
  t.run(x1, 10, 25);
  t.run(y0, 25, 40);
  t.run(y1, 25, 40);
  t.window(0, 50);
  const Accounting accounting = account(t.build());
  EXPECT_NEAR(accounting.ranks[0].exposed_s, 25e-9, 1e-18);
  EXPECT_NEAR(accounting.ranks[0].bubble_s, 5e-9, 1e-18);
  EXPECT_NEAR(accounting.ranks[1].exposed_s, 30e-9, 1e-18);
  EXPECT_NEAR(accounting.ranks[1].bubble_s, 0, 1e-18);
  for (const RankAccount& rank : accounting.ranks) EXPECT_NEAR(hidden_pct(rank), 0, 1e-9);
}

TEST(Accounting, AGapThatNothingExplainsIsIdle) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.compute(r, 10);
  t.wait(b, {a});
  t.run(a, 0, 10);
  t.run(b, 20, 30);
  t.window(0, 30);
  expect_terms(account(t.build()).ranks[0], {.compute = 20, .idle = 10});
}

//          0         10        20        30
//  compute [a         )                  [b         )
//  comm               [t   )                              b waits for t; [10,15) exposed, [15,30) idle
//  other               [u             )                    runs too, but b does not wait for it
TEST(Accounting, ATransferThatNobodyWaitsForIsNotExposed) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.compute(r, 10);
  const auto needed = t.transfer(r, TrafficKind::tp), unneeded = t.transfer(r, TrafficKind::dp_grad);
  t.wait(needed, {a});
  t.wait(b, {needed});
  t.run(a, 0, 10);
  t.run(needed, 10, 15);
  t.run(unneeded, 11, 26);
  t.run(b, 30, 40);
  t.window(0, 40);
  expect_terms(account(t.build()).ranks[0], {.compute = 20, .exposed = 5, .idle = 15, .comm = 16});
}

//          0         10        20
//  comm 1  [ep        )                both end at 10, b waits for both: the lower operation, tp, is charged
//  comm 2  [tp        )
//  compute            [b       )
TEST(Accounting, TiesGoToTheLowestOperation) {
  TestTimeline t;
  const auto r = t.rank();
  const auto tp = t.transfer(r, TrafficKind::tp), ep = t.transfer(r, TrafficKind::ep), b = t.compute(r, 10);
  t.wait(b, {ep, tp});
  t.run(tp, 0, 10);
  t.run(ep, 0, 10);
  t.run(b, 10, 20);
  t.window(0, 20);
  const Accounting accounting = account(t.build());
  EXPECT_NEAR(exposed_ns(accounting.ranks[0], TrafficKind::tp), 10, 1e-6);
  EXPECT_EQ(exposed_ns(accounting.ranks[0], TrafficKind::ep), 0);
}

//          0         10        20        30
//  compute [a (alone 10)       )             overlap in [10, 20); the union is 30, the slowdown
//  extra              [e (alone 5)        )  10 + 15 = 25, compute what is left
TEST(Accounting, OverlappingComputeCountsOnceAndSlowdownIsCapped) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), e = t.compute(r, 5, 2);
  t.run(a, 0, 20);
  t.run(e, 10, 30);
  t.window(0, 30);
  expect_terms(account(t.build()).ranks[0], {.compute = 5, .slowdown = 25});

  TestTimeline same;  // both over [0, 20) with nothing alone: slowdowns add up to 40, the time is 20
  const auto s = same.rank();
  const auto x = same.compute(s, 0), y = same.compute(s, 0, 2);
  same.run(x, 0, 20);
  same.run(y, 0, 20);
  same.window(0, 20);
  expect_terms(account(same.build()).ranks[0], {.slowdown = 20});
}

//          0         10        20        30
//  comm    [tp        )                        b waits for the marker m (length zero, at 10) and for u;
//  compute            m                  [b    [0,10) waits for m, whose predecessor is tp; [10,20) for u
//  comm 2  [u (ep)               )
TEST(Accounting, AZeroLengthOperationCoversNothingButIsWaitedFor) {
  TestTimeline t;
  const auto r = t.rank();
  const auto tp = t.transfer(r, TrafficKind::tp), u = t.transfer(r, TrafficKind::ep);
  const auto m = t.compute(r, 0), b = t.compute(r, 10);
  t.wait(m, {tp});
  t.wait(b, {m, u});
  t.run(tp, 0, 10);
  t.run(u, 0, 20);
  t.run(m, 10, 10);
  t.run(b, 30, 40);
  t.window(0, 40);
  const Accounting accounting = account(t.build());
  EXPECT_NEAR(exposed_ns(accounting.ranks[0], TrafficKind::tp), 10, 1e-6);
  EXPECT_NEAR(exposed_ns(accounting.ranks[0], TrafficKind::ep), 10, 1e-6);
  expect_terms(accounting.ranks[0], {.compute = 10, .exposed = 20, .idle = 10, .comm = 20});
}

//          0         10        20        30        40
//  compute [a         )                            [b  )
//  comm 1             [tp            )                        dependencies unknown: tp in [10,15), then ep,
//  comm 2                  [ep           )                    which ends last, in [15,30); idle after
TEST(Accounting, WithoutDependenciesOwnTransfersInAGapAreExposed) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.compute(r, 5);
  const auto tp = t.transfer(r, TrafficKind::tp), ep = t.transfer(r, TrafficKind::ep);
  t.run(a, 0, 10);
  t.run(b, 40, 45);
  t.run(tp, 10, 25);
  t.run(ep, 15, 30);
  t.window(0, 45);
  const Accounting accounting = account(t.build_without_dependencies());
  EXPECT_NEAR(exposed_ns(accounting.ranks[0], TrafficKind::tp), 5, 1e-6);
  EXPECT_NEAR(exposed_ns(accounting.ranks[0], TrafficKind::ep), 15, 1e-6);
  expect_terms(accounting.ranks[0], {.compute = 15, .exposed = 20, .idle = 10, .comm = 20});
}

// Rank 0 stands for 3 ranks and computes 20 of 20; rank 1 for one and computes 10, idle 10.
TEST(Accounting, MeansAreWeightedByTheRanksStoodForAndMaximaAreTermByTerm) {
  TestTimeline t;
  const auto r0 = t.rank(3), r1 = t.rank(1);
  const auto a = t.compute(r0, 20), b = t.compute(r1, 10);
  t.run(a, 0, 20);
  t.run(b, 0, 10);
  t.window(0, 20);
  const Accounting accounting = account(t.build());
  expect_terms(accounting.mean, {.compute = 17.5, .idle = 2.5});  // (3·20 + 10) / 4, 10 / 4
  EXPECT_NEAR(accounting.max.compute_s, 20e-9, 1e-18);
  EXPECT_NEAR(accounting.max.idle_s, 10e-9, 1e-18);
}

}  // namespace
}  // namespace weft
