#include "timeline/trace/idle_time.hpp"

#include <gtest/gtest.h>

#include "timeline/trace/test_device_trace.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

constexpr std::int64_t kMicro = 1000;

Nanos time_of(const IdleTime& idle, IdleReason reason) {
  return idle.time[reason];
}

class IdleTimeTest : public ::testing::Test {
 protected:
  // In microseconds; `launch` is when the host began the call, which takes one.
  void kernel(std::int32_t stream, std::int64_t launch, std::int64_t start, std::int64_t end) {
    const std::int32_t activity = t_.compute(stream, start * kMicro, end * kMicro);
    t_.launch(activity, launch * kMicro, (launch + 1) * kMicro);
  }
  TestDeviceTrace t_;
};

// HTA's three cases, one after another on stream 7.
TEST_F(IdleTimeTest, AGapIsTheHostsWhereTheNextKernelWasLaunchedAfterItBegan) {
  kernel(7, 0, 10, 20);
  kernel(7, 25, 30, 40);    // launched at 25, after 20: the host's, 10
  kernel(7, 26, 69, 70);    // launched in time, 29 later: overhead between kernels
  kernel(7, 27, 100, 110);  // launched in time, 30 later: no overhead any more
  const std::vector<IdleTime> idle = idle_times(t_.trace(), t_.all());
  ASSERT_EQ(idle.size(), 2U);
  EXPECT_EQ(idle[0].stream, kAbsent);
  EXPECT_EQ(idle[1].stream, 7);
  for (const IdleTime& entry : idle) {
    EXPECT_EQ(time_of(entry, IdleReason::host_wait).value, 10 * kMicro);
    EXPECT_EQ(time_of(entry, IdleReason::kernel_wait).value, 29 * kMicro);
    EXPECT_EQ(time_of(entry, IdleReason::other).value, 30 * kMicro);
    EXPECT_EQ(entry.gaps, (std::array<std::int64_t, kIdleReasons>{1, 1, 1}));
  }
}

// A call that begins at the very end of the kernel before is in time: HTA compares with >.
TEST_F(IdleTimeTest, ALaunchAtTheEndOfTheKernelBeforeIsInTime) {
  kernel(7, 0, 10, 20);
  kernel(7, 20, 25, 30);
  EXPECT_EQ(time_of(idle_times(t_.trace(), t_.all())[1], IdleReason::kernel_wait).value, 5 * kMicro);
}

// Stream 7 waits from 20 to 90 and stream 9 from 60 to 70; nothing runs from 60 to 70 alone.
TEST_F(IdleTimeTest, TheDeviceIsIdleWhereAllStreamsAre) {
  kernel(7, 0, 10, 20);
  kernel(9, 1, 15, 60);
  kernel(9, 65, 70, 95);
  kernel(7, 2, 90, 100);
  const std::vector<IdleTime> idle = idle_times(t_.trace(), t_.all());
  ASSERT_EQ(idle.size(), 3U);
  EXPECT_EQ(idle[0].total().value, 10 * kMicro);
  EXPECT_EQ(time_of(idle[0], IdleReason::host_wait).value, 10 * kMicro);
  EXPECT_EQ(time_of(idle[1], IdleReason::other).value, 70 * kMicro);
  EXPECT_EQ(time_of(idle[2], IdleReason::host_wait).value, 10 * kMicro);
}

TEST_F(IdleTimeTest, AKernelWithoutLaunchIsNeverTheHosts) {
  t_.compute(7, 0, 10 * kMicro);
  t_.compute(7, 100 * kMicro, 110 * kMicro);
  EXPECT_EQ(time_of(idle_times(t_.trace(), t_.all())[0], IdleReason::other).value, 90 * kMicro);
}

// Ready at 60, begun at 65. The transfer after it waits for its other members until it begins.
TEST_F(IdleTimeTest, OurOwnOperationsWaitUntilTheyAreReady) {
  t_.trace().source = TraceSource::weft;
  t_.compute(0, 0, 10);
  t_.trace().device[t_.compute(0, 65, 70)].ready = Nanos{60};
  t_.trace().device[t_.communicate(1, 90, 100)].ready = Nanos{75};
  const IdleTime idle = idle_times(t_.trace(), t_.all())[0];
  EXPECT_EQ(time_of(idle, IdleReason::other).value, 50 + 20);
  EXPECT_EQ(time_of(idle, IdleReason::kernel_wait).value, 5);
}

TEST_F(IdleTimeTest, NothingIsIdleWhereNothingRuns) {
  const std::vector<IdleTime> idle = idle_times(t_.trace(), {});
  ASSERT_EQ(idle.size(), 1U);
  EXPECT_EQ(idle[0].total().value, 0);
}

}  // namespace
}  // namespace weft
