#include "timeline/trace/device_order.hpp"

#include <gtest/gtest.h>

#include "timeline/trace/test_device_trace.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;
using Waits = std::vector<DeviceDependency>;

TEST(DeviceOrder, AnEventMarksWhatItsStreamWasGivenBeforeAndHoldsWhatTheOtherIsGivenAfter) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), b = t.compute(7, 200, 260), early = t.communicate(20, 210, 220);
  const auto held = t.communicate(20, 300, 400);
  t.launch(a, 10, 12);
  const auto record = t.call(HostCall::event_record, 20, 21);
  t.launch(b, 30, 31);      // given to stream 7 after the event was recorded
  t.launch(early, 35, 36);  // given to stream 20 before it was made to wait
  const auto wait = t.call(HostCall::stream_wait_event, 40, 41);
  t.launch(held, 50, 51);
  t.stream_waits(wait, 20, record, 7);
  const DeviceOrder order = order_device(t.trace());
  EXPECT_EQ(order.source, WaitSource::recorded);
  EXPECT_EQ(order.waits, (Waits{{a, held}}));
  EXPECT_EQ(order.previous_on_stream(held), early);
  EXPECT_EQ(order.previous_on_stream(a), kAbsent);
}

TEST(DeviceOrder, WaitsAreInferredFromRecordAndWaitBetweenTwoLaunches) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), c = t.communicate(20, 210, 300), b = t.compute(7, 310, 400);
  t.launch(a, 10, 12);
  t.call(HostCall::event_record, 20, 21);
  t.call(HostCall::stream_wait_event, 22, 23);
  t.launch(c, 30, 31);
  t.call(HostCall::event_record, 40, 41);
  t.call(HostCall::other, 42, 43);
  t.call(HostCall::stream_wait_event, 44, 45);
  t.launch(b, 50, 51);
  const DeviceOrder order = order_device(t.trace());
  EXPECT_EQ(order.source, WaitSource::inferred);
  EXPECT_EQ(order.waits, (Waits{{a, c}, {c, b}}));
}

TEST(DeviceOrder, AWaitForAnOlderEventIsForTheCommunicationLaunchedLast) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), c = t.communicate(20, 200, 300), b = t.compute(7, 210, 250);
  const auto d = t.compute(7, 320, 400);
  t.launch(a, 10, 12);
  t.launch(c, 30, 31);
  t.launch(b, 50, 51);
  t.call(HostCall::stream_wait_event, 60, 61);
  t.launch(d, 70, 71);
  // c itself waits for what its thread launched before.
  EXPECT_EQ(order_device(t.trace()).waits, (Waits{{a, c}, {c, d}}));
}

TEST(DeviceOrder, WhatTheTimesContradictIsNoWait) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 5000), c = t.communicate(20, 200, 300);
  t.launch(a, 10, 12);
  t.launch(c, 30, 31);
  EXPECT_TRUE(order_device(t.trace()).waits.empty());
}

TEST(DeviceOrder, ACallWaitsForTheLastThatEndsWithinIt) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), b = t.compute(8, 100, 220), later = t.compute(9, 215, 225);
  t.launch(a, 10, 12);
  t.launch(b, 13, 14);
  t.call(HostCall::device_synchronize, 50, 230);
  t.launch(later, 60, 61, 1);                      // by another thread, after the call began: nothing it waits for
  t.call(HostCall::device_synchronize, 300, 310);  // all is done
  const DeviceOrder order = order_device(t.trace());
  ASSERT_EQ(order.host_waits.size(), 1u);
  EXPECT_EQ(order.host_waits[0].activity, b);
  EXPECT_EQ(order.host_waits_of(0).size(), 1u);
  EXPECT_TRUE(order.host_waits_of(1).empty());
}

TEST(DeviceOrder, ACopyWhoseCallOutlastsItKeepsTheHost) {
  TestDeviceTrace t;
  const auto blocking = t.copy(7, 100, 200), free = t.copy(7, 300, 400);
  t.launch(blocking, 50, 205);
  t.launch(free, 210, 215);
  const DeviceOrder order = order_device(t.trace());
  ASSERT_EQ(order.host_waits.size(), 1u);
  EXPECT_EQ(order.host_waits[0].activity, blocking);
}

}  // namespace
}  // namespace weft
