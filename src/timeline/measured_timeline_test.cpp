// Accounts of small timelines as a run measures them: spans longer and shorter than alone, gaps, clocks that disagree.
#include <gtest/gtest.h>

#include "timeline/accounting.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using test::TestTimeline;

double sum_of(const RankAccount& a) {
  return a.compute_s + a.slowdown_s + a.exposed_s + a.bubble_s + a.idle_s;
}

// In nanoseconds a step.
void expect_account(const RankAccount& account, double compute, double slowdown, double exposed, double bubble,
                    double idle) {
  EXPECT_NEAR(account.compute_s * 1e9, compute, 1e-6);
  EXPECT_NEAR(account.slowdown_s * 1e9, slowdown, 1e-6);
  EXPECT_NEAR(account.exposed_s * 1e9, exposed, 1e-6);
  EXPECT_NEAR(account.bubble_s * 1e9, bubble, 1e-6);
  EXPECT_NEAR(account.idle_s * 1e9, idle, 1e-6);
  EXPECT_NEAR(sum_of(account), account.step_s, 1e-15);
}

TEST(MeasuredTimeline, SlowdownIsWhatSpansTakeBeyondAloneAndFastOnesGiveNothingBack) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.compute(r, 10);
  t.wait(b, {a});
  t.run(a, 0, 13);   // 3 more than alone
  t.run(b, 15, 22);  // 3 less
  t.window(0, 22);
  expect_account(account(t.build()).ranks[0], 17, 3, 0, 0, 2);
}

// The communication thread notes the end of a transfer after it has woken the one who waits.
TEST(MeasuredTimeline, ADependencyMayEndAfterItsSuccessorStarted) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 100), reduce = t.transfer(r, TrafficKind::dp_grad), b = t.compute(r, 50);
  t.wait(reduce, {a});
  t.wait(b, {reduce});
  t.run(a, 0, 100);
  t.run(reduce, 98, 205);  // and its start before what it waited for had noted its end
  t.run(b, 200, 250);
  t.window(0, 250);
  expect_account(account(t.build()).ranks[0], 150, 0, 100, 0, 0);
}

// Both compute [0, 100) by their own clocks; rank 1's is 4 behind, so that the reduction seems to start there before
// rank 0 was ready. What rank 0 waits for is the reduction but for the moments that clocks cannot tell.
TEST(MeasuredTimeline, ClocksThatDisagreeMoveNoMoreThanTheyDisagree) {
  TestTimeline t;
  for (std::int32_t r = 0; r < 2; ++r) {
    t.rank();
    const std::int64_t clock = r == 0 ? 0 : -4;
    const auto a = t.compute(r, 100), reduce = t.transfer(r, TrafficKind::dp_grad, 9), b = t.compute(r, 50);
    t.wait(reduce, {a});
    t.wait(b, {reduce});
    t.run(a, clock, clock + 100);
    t.run(reduce, clock + 101, clock + 200);
    t.run(b, clock + 202, clock + 252);
  }
  t.window(0, 252);
  const Accounting accounting = account(t.build());
  // [100,101) and [200,202) idle, [101,200) exposed.
  expect_account(accounting.ranks[0], 150, 0, 99, 0, 3);
  // The window cuts the first 4 off and adds 4 at the end. [96,97): the last predecessor of the reduction is rank 0's
  // compute, which runs until 100 by its clock: bubble.
  expect_account(accounting.ranks[1], 146, 0, 99, 1, 6);
}

// Warm-up in iteration 0 is left out; three steps of 101, 99 and 103 have a period of 101.
TEST(MeasuredTimeline, ThePeriodIsTheElapsedTimeOverTheSteps) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 90);
  t.wait(a, {a}, 1);
  const std::int64_t starts[] = {0, 500, 601, 700, 803};
  for (std::int32_t i = 0; i < 5; ++i) t.run(a, starts[i], starts[i] + (i == 0 ? 400 : 90 + i), i);
  t.window(500, (803 - 500) / 3.0, 3);
  Timeline timeline = t.build();
  timeline.steady_first = 1;
  timeline.measured = true;
  // Spans of 91, 92 and 93: (270, 6, the rest of 303) / 3.
  expect_account(account(timeline).ranks[0], 90, 2, 0, 0, 9);
}

}  // namespace
}  // namespace weft
