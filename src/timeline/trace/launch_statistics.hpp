// How long launches took and how far ahead of the device the host was, as Holistic Trace Analysis (HTA) counts it
// (get_cuda_kernel_launch_stats, get_queue_length_summary, get_time_spent_blocked_on_full_queue).
#pragma once

#include <cstdint>
#include <vector>

#include "timeline/trace/device_trace.hpp"

namespace weft {

// HTA's cut-offs.
inline constexpr Nanos kLongCall{50'000};         // of the host
inline constexpr Nanos kLongDelay{100'000};       // from the end of the call to the kernel's start
inline constexpr std::int64_t kFullQueue = 1024;  // launches that a CUDA stream takes before the host has to wait

struct Distribution {
  Nanos median, longest;  // the lower of the two in the middle
};

struct LaunchStatistics {
  std::int64_t launches = 0;       // calls of the host with their kernel, copy or fill
  std::int64_t short_kernels = 0;  // shorter than their call, which was no long one
  std::int64_t long_calls = 0;
  std::int64_t long_delays = 0;
  Distribution call, kernel, delay;  // a delay below 0 counts as 0
};

// Launches that had not begun to run, of one stream.
struct QueueLength {
  std::int32_t device = 0, stream = 0;
  std::int64_t longest = 0;
  double mean = 0;             // over time, from the first launch to the last start
  double mean_of_changes = 0;  // over the instants at which it changed: HTA's mean
  Nanos full;                  // time at kFullQueue or above
};

// Of `activities`, indices into trace.device in ascending order, those that a call for one kernel, copy or fill
// launched: not of CUDA graphs. Unlike HTA's launch statistics (and like its queue length) driver calls count too.
LaunchStatistics launch_statistics(const DeviceTrace& trace, const std::vector<std::int32_t>& activities);
// By device, then stream.
std::vector<QueueLength> queue_lengths(const DeviceTrace& trace, const std::vector<std::int32_t>& activities);

}  // namespace weft
