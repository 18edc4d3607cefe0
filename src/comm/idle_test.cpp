#include "comm/idle.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace weft {
namespace {

using namespace std::chrono_literals;
using Clock = IdleStrategy::Clock;

const Clock::time_point kStart{1h};

IdleOptions options() {
  return {.spin = 10us, .yield = 20us, .shortest_sleep = 5us, .longest_sleep = 100us, .share = 10};
}

TEST(IdleStrategy, SpinsThenYieldsThenSleeps) {
  IdleStrategy idle(options());
  EXPECT_EQ(idle.next(kStart), IdleStep::spin);
  EXPECT_EQ(idle.next(kStart + 9us), IdleStep::spin);
  EXPECT_EQ(idle.next(kStart + 10us), IdleStep::yield);
  EXPECT_EQ(idle.next(kStart + 29us), IdleStep::yield);
  EXPECT_EQ(idle.next(kStart + 30us), IdleStep::sleep);
}

TEST(IdleStrategy, SleepsATenthOfTheTimeWaitedWithinBounds) {
  IdleStrategy idle(options());
  idle.next(kStart);
  idle.next(kStart + 30us);
  EXPECT_EQ(idle.sleep(), 5us);  // a tenth would be 3 us
  idle.next(kStart + 400us);
  EXPECT_EQ(idle.sleep(), 40us);
  idle.next(kStart + 2000us);
  EXPECT_EQ(idle.sleep(), 100us);  // a tenth would be 200 us
}

TEST(IdleStrategy, SpinsAgainAfterSomethingHappened) {
  IdleStrategy idle(options());
  idle.next(kStart);
  ASSERT_EQ(idle.next(kStart + 31us), IdleStep::sleep);
  idle.happened(kStart + 32us);
  // The new wait begins with the first question after the event, not with the event.
  EXPECT_EQ(idle.next(kStart + 2s), IdleStep::spin);
  EXPECT_EQ(idle.next(kStart + 2s + 15us), IdleStep::yield);
}

// Waits of 800 us count a quarter each: 200 us, then 350 us, ... are typical. Above 4 (10 + 20) us = 120 us no time is
// spent awake, and the first sleep is a tenth of what is typical.
TEST(IdleStrategy, SleepsAtOnceWhereWaitsTookLong) {
  IdleStrategy idle(options());
  EXPECT_EQ(idle.next(kStart), IdleStep::spin);
  idle.happened(kStart + 800us);
  EXPECT_EQ(idle.next(kStart + 1s), IdleStep::sleep);
  EXPECT_EQ(idle.sleep(), 20us);
  idle.happened(kStart + 1s + 800us);
  EXPECT_EQ(idle.next(kStart + 2s), IdleStep::sleep);
  EXPECT_EQ(idle.sleep(), 35us);
}

TEST(IdleStrategy, SpinsAgainWhenWaitsBecomeShort) {
  IdleStrategy idle(options());
  idle.next(kStart);
  idle.happened(kStart + 800us);  // typical: 200 us
  ASSERT_EQ(idle.next(kStart + 1s), IdleStep::sleep);
  idle.happened(kStart + 1s + 20us);  // 155 us
  ASSERT_EQ(idle.next(kStart + 2s), IdleStep::sleep);
  idle.happened(kStart + 2s + 7us);  // 118 us
  EXPECT_EQ(idle.next(kStart + 3s), IdleStep::spin);
}

TEST(WakeableSleep, EndsAtTheTimeGivenWhenNobodyWakes) {
  WakeableSleep sleep;
  const auto until = WakeableSleep::Clock::now() + 1ms;
  EXPECT_FALSE(sleep.sleep_until(until));
  EXPECT_GE(WakeableSleep::Clock::now(), until);
}

TEST(WakeableSleep, AWakeBeforeTheSleepEndsItOnce) {
  WakeableSleep sleep;
  sleep.wake();
  EXPECT_TRUE(sleep.sleep_until(WakeableSleep::Clock::now() + 1h));
  EXPECT_FALSE(sleep.sleep_until(WakeableSleep::Clock::now() + 1ms));
}

TEST(WakeableSleep, AnotherThreadEndsIt) {
  WakeableSleep sleep;
  std::thread waker([&] { sleep.wake(); });
  EXPECT_TRUE(sleep.sleep_until(WakeableSleep::Clock::now() + 1h));
  waker.join();
}

TEST(WakeableSleep, TakingAWakeForgetsIt) {
  WakeableSleep sleep;
  EXPECT_FALSE(sleep.take_wake());
  sleep.wake();
  EXPECT_TRUE(sleep.take_wake());
  EXPECT_FALSE(sleep.take_wake());
}

}  // namespace
}  // namespace weft
