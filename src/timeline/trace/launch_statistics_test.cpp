#include "timeline/trace/launch_statistics.hpp"

#include <gtest/gtest.h>

#include "timeline/trace/test_device_trace.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

constexpr std::int64_t kMicro = 1000;

class LaunchStatisticsTest : public ::testing::Test {
 protected:
  // In microseconds.
  void kernel(std::int32_t stream, std::int64_t call, std::int64_t call_end, std::int64_t start, std::int64_t end,
              const std::string& name = "cudaLaunchKernel") {
    const std::int32_t activity = t_.compute(stream, start * kMicro, end * kMicro);
    const std::int32_t host = t_.launch(activity, call * kMicro, call_end * kMicro);
    t_.trace().host[host].name = t_.name(name);
  }
  TestDeviceTrace t_;
};

// HTA's three lists: kernels shorter than their call (of at most 50 us), calls over 50 us, delays over 100 us.
TEST_F(LaunchStatisticsTest, CountsShortKernelsLongCallsAndLongDelays) {
  kernel(7, 0, 10, 12, 14);       // 10 us call, 2 us kernel: short; delay 2
  kernel(7, 20, 80, 85, 90);      // 60 us call: long, and so not counted as short; delay 5
  kernel(7, 90, 95, 195, 300);    // delay 100: not over it
  kernel(7, 96, 100, 301, 400);   // delay 201: long
  kernel(7, 500, 520, 510, 600);  // began before its call returned: delay 0
  const LaunchStatistics found = launch_statistics(t_.trace(), t_.all());
  EXPECT_EQ(found.launches, 5);
  EXPECT_EQ(found.short_kernels, 1);
  EXPECT_EQ(found.long_calls, 1);
  EXPECT_EQ(found.long_delays, 1);
  EXPECT_EQ(found.delay.median.value, 5 * kMicro);  // of 0, 2, 5, 100, 201
  EXPECT_EQ(found.delay.longest.value, 201 * kMicro);
  EXPECT_EQ(found.call.median.value, 10 * kMicro);  // of 4, 5, 10, 20, 60
  EXPECT_EQ(found.call.longest.value, 60 * kMicro);
}

TEST_F(LaunchStatisticsTest, GraphsAndKernelsWithoutCallAreLeftOut) {
  kernel(7, 0, 10, 12, 14, "cudaGraphLaunch");
  t_.compute(7, 20 * kMicro, 30 * kMicro);
  EXPECT_EQ(launch_statistics(t_.trace(), t_.all()).launches, 0);
  EXPECT_TRUE(queue_lengths(t_.trace(), t_.all()).empty());
}

// Launches at 0, 1, 2; starts at 10, 20, 40: lengths 1 2 3 2 1 0 from these times on.
TEST_F(LaunchStatisticsTest, TheQueueGrowsAtLaunchesAndShrinksAtStarts) {
  kernel(7, 0, 1, 10, 20);
  kernel(7, 1, 2, 20, 40);
  kernel(7, 2, 3, 40, 41);
  const std::vector<QueueLength> queues = queue_lengths(t_.trace(), t_.all());
  ASSERT_EQ(queues.size(), 1U);
  EXPECT_EQ(queues[0].stream, 7);
  EXPECT_EQ(queues[0].longest, 3);
  EXPECT_DOUBLE_EQ(queues[0].mean_of_changes, 9.0 / 6);
  // 1 for 1 us, 2 for 1, 3 for 8, 2 for 10, 1 for 20: 67 over 40.
  EXPECT_DOUBLE_EQ(queues[0].mean, 67.0 / 40);
  EXPECT_EQ(queues[0].full.value, 0);
}

// 1024 launches, one each microsecond; the first kernel starts 100 us after the last launch.
TEST_F(LaunchStatisticsTest, AQueueOf1024IsFull) {
  for (std::int64_t i = 0; i < kFullQueue; ++i) kernel(7, i, i + 1, kFullQueue - 1 + 100 + i, kFullQueue + 100 + i);
  const std::vector<QueueLength> queues = queue_lengths(t_.trace(), t_.all());
  EXPECT_EQ(queues[0].longest, kFullQueue);
  EXPECT_EQ(queues[0].full.value, 100 * kMicro);
}

TEST_F(LaunchStatisticsTest, StreamsHaveQueuesOfTheirOwn) {
  kernel(7, 0, 1, 10, 20);
  kernel(9, 1, 2, 20, 40);
  const std::vector<QueueLength> queues = queue_lengths(t_.trace(), t_.all());
  ASSERT_EQ(queues.size(), 2U);
  EXPECT_EQ(queues[0].longest, 1);
  EXPECT_EQ(queues[1].longest, 1);
}

}  // namespace
}  // namespace weft
