// How the accounting treats what crosses the borders of its window.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "timeline/test_accounting.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using test::TestTimeline;

//           -20       -10       0         10        20
//  compute  [a, it. 0  )                       [a, it. 1 )
//  comm                [gather, it. 0           )            a of iteration 1 waits for the gather of iteration 0
//                               ^ window [0, 20)
TEST(Accounting, ALoopCarriedTransferAcrossTheWindowsStartIsExposedWithinIt) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), gather = t.transfer(r, TrafficKind::param_gather);
  t.wait(gather, {a});
  t.wait(a, {gather}, 1);
  t.run(a, -20, -10, 0);
  t.run(gather, -10, 10, 0);
  t.run(a, 10, 20, 1);
  t.window(0, 20);
  const Accounting accounting = account(t.build());
  expect_terms(accounting.ranks[0], {.compute = 10, .exposed = 10, .comm = 10});
  ASSERT_EQ(accounting.exposed.size(), 1u);
  EXPECT_EQ(accounting.exposed[0].begin, Nanos{0});
}

//          0         10        20        30        40        50
//  compute [a         )         [a         )         [a         ...     iterations 0, 1, 2 of period 20
//  comm               [g   )              [g   )                        next a waits for g: 5 exposed, then 5 idle
//          |------- window: two periods ---|---------|
TEST(Accounting, AWindowOfSeveralPeriodsIsDividedByThem) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 8), g = t.transfer(r, TrafficKind::dp_grad);
  t.wait(g, {a});
  t.wait(a, {g}, 1);
  for (int i = 0; i < 3; ++i) {
    t.run(a, 20 * i, 20 * i + 10, i);
    t.run(g, 20 * i + 10, 20 * i + 15, i);
  }
  t.window(0, 20, 2);
  const Accounting accounting = account(t.build());
  expect_terms(accounting.ranks[0], {.compute = 8, .slowdown = 2, .exposed = 5, .idle = 5, .comm = 5});
  EXPECT_EQ(accounting.exposed.size(), 2u);
}

//          20        30        40        50
//  compute [a         )             [a, it. 1 )     starts after the window's end at 40, yet says what
//  comm 1             [needed )                     [30, 40) waited for: 5 exposed, 5 idle
//  comm 2             [unneeded )                   runs until 39, and a does not wait for it
TEST(Accounting, TheOperationAfterTheWindowExplainsItsLastGap) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), needed = t.transfer(r, TrafficKind::dp_grad);
  const auto unneeded = t.transfer(r, TrafficKind::ep);
  t.wait(needed, {a});
  t.wait(a, {needed}, 1);
  t.run(a, 20, 30, 0);
  t.run(needed, 30, 35, 0);
  t.run(unneeded, 30, 39, 0);
  t.run(a, 45, 55, 1);
  t.window(20, 20);
  const Accounting accounting = account(t.build());
  EXPECT_NEAR(exposed_ns(accounting.ranks[0], TrafficKind::dp_grad), 5, 1e-6);
  EXPECT_EQ(exposed_ns(accounting.ranks[0], TrafficKind::ep), 0);
  expect_terms(accounting.ranks[0], {.compute = 10, .exposed = 5, .idle = 5, .comm = 9});

  // With no a after the window nobody says; then what runs last, the unneeded one, is exposed, and [39, 40) is idle.
  Timeline ends = t.build();
  ends.spans.pop_back();
  const Accounting ended = account(ends);
  EXPECT_NEAR(exposed_ns(ended.ranks[0], TrafficKind::ep), 9, 1e-6);
  expect_terms(ended.ranks[0], {.compute = 10, .exposed = 9, .idle = 1, .comm = 9});
}

TEST(Accounting, AWindowWithoutLengthIsAnErrorAndARankWithoutSpansIsIdle) {
  TestTimeline t;
  t.rank();
  EXPECT_THROW(account(t.build()), Error);  // no period
  t.window(0, 10);
  expect_terms(account(t.build()).ranks[0], {.idle = 10});
  t.window(0, 10, 0);
  EXPECT_THROW(account(t.build()), Error);
  t.window(0, std::nan(""));
  EXPECT_THROW(account(t.build()), Error);
}

}  // namespace
}  // namespace weft
