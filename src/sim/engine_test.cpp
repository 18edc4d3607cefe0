#include "sim/engine.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "sim/test_problems.hpp"

namespace weft::test {
namespace {

TEST(Engine, AChainOfComputeTakesTheSum) {
  TestProblem p;
  const auto rank = p.rank();
  const auto a = p.compute(rank, 3), b = p.compute(rank, 5), c = p.compute(rank, 7);
  p.wait(b, a);
  p.wait(c, b);
  const SimResult result = simulate(p.build());
  EXPECT_EQ(result.period_ns, 15);
  EXPECT_TRUE(result.repeats);
  EXPECT_EQ(end_of(result, c), 15);
}

// begin (2) feeds a transfer and a compute operation; the next begin waits for both.
double period_of_a_fork(std::int64_t compute, std::int64_t moving, bool blocking) {
  TestProblem p;
  const auto rank = p.rank();
  const auto begin = p.compute(rank, 2), work = p.compute(rank, compute);
  const auto transfer = p.transfer(rank, {.moving = moving});
  p.wait(transfer, begin);
  p.wait(begin, transfer, 1);
  if (blocking) p.wait(work, transfer);
  return simulate(p.build()).period_ns;
}

TEST(Engine, WithoutInterferenceATransferAndComputeOverlapCompletely) {
  EXPECT_EQ(period_of_a_fork(10, 6, false), 2 + 10);
  EXPECT_EQ(period_of_a_fork(10, 14, false), 2 + 14);
}

TEST(Engine, ABlockingTransferAddsItsTime) {
  EXPECT_EQ(period_of_a_fork(10, 6, true), 2 + 6 + 10);
  EXPECT_EQ(period_of_a_fork(10, 14, true), 2 + 14 + 10);
}

// begin (2), a message (6) beside `work`, then `end` (3), which needs the message.
double period_with_wake(std::int64_t work, std::int64_t wake, bool blocking = false) {
  TestProblem p;
  const auto rank = p.rank(0, 0, wake);
  const auto begin = p.compute(rank, 2);
  if (work > 0) p.compute(rank, work);
  const auto message = p.transfer(rank, {.moving = 6, .blocking = blocking});
  const auto end = p.compute(rank, 3);
  p.wait(message, begin);
  p.wait(end, message);
  return simulate(p.build()).period_ns;
}

TEST(Engine, ARankThatSleepsUntilATransferEndsTakesItsTimeToWake) {
  EXPECT_EQ(period_with_wake(0, 0), 2 + 6 + 3);
  EXPECT_EQ(period_with_wake(0, 4), 2 + 6 + 4 + 3);
  EXPECT_EQ(period_with_wake(5, 4), 2 + 6 + 4 + 3);
}

TEST(Engine, ARankThatWasNotIdleNeedsNotWake) {
  EXPECT_EQ(period_with_wake(6, 4), 2 + 6 + 3);  // compute and message end in the same instant
  EXPECT_EQ(period_with_wake(10, 4), 2 + 10 + 3);
}

TEST(Engine, WhatAChainWaitsForOnTheSpotHasItsWakeUpInItsCost) {
  EXPECT_EQ(period_with_wake(0, 4, true), 2 + 6 + 3);
}

TEST(Engine, TransfersOfOneQueueFollowEachOtherAndThoseOfTwoQueuesDoNot) {
  TestProblem p;
  const auto rank = p.rank();
  const auto first = p.transfer(rank, {.moving = 4, .queue = 0});
  const auto second = p.transfer(rank, {.moving = 4, .queue = 0});
  const auto beside = p.transfer(rank, {.moving = 4, .queue = 1});
  p.wait(first, beside, 1);
  p.wait(beside, second, 1);
  const SimResult result = simulate(p.build());
  EXPECT_EQ(end_of(result, first), 4);
  EXPECT_EQ(end_of(result, second), 8);
  EXPECT_EQ(end_of(result, beside), 4);
}

TEST(Engine, AJointTransferStartsWithItsLastMemberAndEndsForAllAtOnce) {
  // Ranks compute 5 and 9, then exchange for 4: 9 to 13 on both. The early rank was ready at 5.
  TestProblem p;
  const auto r0 = p.rank(), r1 = p.rank();
  const auto a0 = p.compute(r0, 5), a1 = p.compute(r1, 9);
  const auto t0 = p.transfer(r0, {.moving = 4, .joint = 0});
  const auto t1 = p.transfer(r1, {.moving = 4, .joint = 0});
  p.wait(t0, a0);
  p.wait(t1, a1);
  p.wait(a0, t0, 1);
  p.wait(a1, t1, 1);
  const SimResult result = simulate(p.build());
  for (const auto t : {t0, t1}) {
    EXPECT_EQ(start_of(result, t), 9);
    EXPECT_EQ(end_of(result, t), 13);
    EXPECT_EQ(times_of(result, t).issued, Nanos{0});
  }
  EXPECT_EQ(times_of(result, t0).ready, Nanos{5});
  EXPECT_EQ(times_of(result, t1).ready, Nanos{9});
  EXPECT_EQ(result.period_ns, 13);
}

TEST(Engine, AJointTransferWaitsForTheQueueOfEveryMember) {
  // Rank 1's queue is busy until 20 with a transfer of its own, so the joint one starts at 20 although all are ready.
  TestProblem p;
  const auto r0 = p.rank(), r1 = p.rank();
  const auto own = p.transfer(r1, {.moving = 20, .queue = 0});
  const auto t0 = p.transfer(r0, {.moving = 4, .queue = 0, .joint = 0});
  const auto t1 = p.transfer(r1, {.moving = 4, .queue = 0, .joint = 0});
  const SimResult result = simulate(p.build());
  EXPECT_EQ(end_of(result, own), 20);
  EXPECT_EQ(start_of(result, t0), 20);
  EXPECT_EQ(start_of(result, t1), 20);
  EXPECT_EQ(times_of(result, t1).issued, Nanos{20});
  EXPECT_EQ(times_of(result, t1).ready, Nanos{0});
}

TEST(Engine, IssuedIsWhenTheQueueReachedItAndReadyWhenItsDataWasThere) {
  // Compute: a 0-4, b 4-10. c is issued when b ends (10); it needs the transfer that a feeds (4-19).
  TestProblem p;
  const auto rank = p.rank();
  const auto a = p.compute(rank, 4), b = p.compute(rank, 6), c = p.compute(rank, 1);
  const auto t = p.transfer(rank, {.moving = 15});
  p.wait(t, a);
  p.wait(c, t);
  const SimResult result = simulate(p.build());
  EXPECT_EQ(times_of(result, b).issued, Nanos{4});
  EXPECT_EQ(times_of(result, c).issued, Nanos{10});
  EXPECT_EQ(times_of(result, c).ready, Nanos{19});
  EXPECT_EQ(start_of(result, c), 19);
  EXPECT_EQ(times_of(result, a, 1).issued, Nanos{20});
}

TEST(Engine, AnExtraOperationStartsOnlyWhenComputeIsNotReadyAndIsNeverPreempted) {
  // a 0-4, then a transfer until 14 that b needs. Extra x (6) could start at 0 but a is ready: it starts at 4 and ends
  // at 10; y (7) starts at 10 and holds the worker until 17, so that b, ready at 14, runs 17-20.
  TestProblem p;
  const auto rank = p.rank();
  const auto a = p.compute(rank, 4), b = p.compute(rank, 3);
  const auto x = p.extra(rank, 6), y = p.extra(rank, 7);
  const auto t = p.transfer(rank, {.moving = 10});
  p.wait(t, a);
  p.wait(b, t);
  const SimResult result = simulate(p.build());
  EXPECT_EQ(start_of(result, a), 0);
  EXPECT_EQ(start_of(result, x), 4);
  EXPECT_EQ(start_of(result, y), 10);
  EXPECT_EQ(times_of(result, b).ready, Nanos{14});
  EXPECT_EQ(start_of(result, b), 17);
  EXPECT_EQ(result.period_ns, 20);  // the next a is ready at 20, and so goes before the next x
}

TEST(Engine, ComputeThatBecomesReadyThroughATransferOfNoLengthGoesBeforeExtra) {
  // At 4 a ends and its empty message arrives: b is ready at 4, so x has to wait until 7. The next a needs x.
  TestProblem p;
  const auto rank = p.rank();
  const auto a = p.compute(rank, 4), b = p.compute(rank, 3);
  const auto x = p.extra(rank, 5);
  const auto t = p.transfer(rank, {.moving = 0});
  p.wait(t, a);
  p.wait(b, t);
  p.wait(a, x, 1);
  const SimResult result = simulate(p.build());
  EXPECT_EQ(start_of(result, b), 4);
  EXPECT_EQ(start_of(result, x), 7);
  EXPECT_EQ(result.period_ns, 12);
}

TEST(Engine, ExtraWorkThatNeverGetsATurnIsAnErrorNotAnEndlessRun) {
  // Compute is always ready and nothing waits for the extra operation.
  TestProblem p;
  const auto rank = p.rank();
  p.compute(rank, 4);
  p.extra(rank, 5);
  EXPECT_THROW(simulate(p.build()), Error);
}

// `compute`, then a message (6) that compute waits for, over links that save up `burst` and, with half the share,
// `other`.
double period_with_burst(std::int64_t compute, std::int64_t burst, std::int64_t other) {
  TestProblem p;
  const auto rank = p.rank();
  const auto work = p.compute(rank, compute);
  const auto message = p.transfer(rank, {.moving = 6, .use = {{0, 1.0}, {1, 0.5}}, .blocking = true});
  p.wait(message, work);
  SimProblem problem = p.build();
  problem.burst = {Nanos{burst}, Nanos{other}};
  return simulate(problem).period_ns;
}

TEST(Engine, AfterAPauseATransferIsAheadByWhatItsLinksSavedUp) {
  EXPECT_EQ(period_with_burst(10, 0, 0), 10 + 6);
  EXPECT_EQ(period_with_burst(10, 4, 9), 10 + 2);
  EXPECT_EQ(period_with_burst(10, 9, 9), 10);
  EXPECT_EQ(period_with_burst(10, 4, 1), 10 + 4);  // the second link is ahead by 1, which is 2 at half its share
}

TEST(Engine, LinksSaveUpNoMoreThanTheyWereIdle) {
  EXPECT_EQ(period_with_burst(1, 4, 9), 6);  // a link never carries more than its rate in the long run
  EXPECT_EQ(period_with_burst(3, 4, 9), 6);
}

TEST(Engine, NothingToDoTakesNoTime) {
  EXPECT_EQ(simulate({}).period_ns, 0);
}

// Beside one transfer compute takes 1.5 times as long, beside two twice. Of 100 ns, 40 are done at 80, when the shorter
// one ends, and 30 more at 125, when the other does.
TEST(Interference, OfSeveralTransfersAddsUp) {
  TestProblem p;
  const auto rank = p.rank(0.5, 0, 0, 0.5);
  const auto compute = p.compute(rank, 100);
  for (const std::int64_t moving : {80, 125})
    p.wait(p.transfer(rank, {.moving = moving, .use = {{0, 0.5}}}), compute, 1);
  EXPECT_EQ(end_of(simulate(p.build()), compute), 155);
}

}  // namespace
}  // namespace weft::test
