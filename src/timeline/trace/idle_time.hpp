// Why a device, or one of its streams, was idle between two kernels, as Holistic Trace Analysis (HTA) decides it
// (get_idle_time_breakdown): by when the host launched the later one.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "timeline/trace/device_trace.hpp"

namespace weft {

enum class IdleReason : std::uint8_t {
  host_wait,    // the next kernel was launched after the one before had ended: the host came late
  kernel_wait,  // it was launched in time, and the gap is short: the overhead between two kernels
  other         // it was launched in time and waited longer, for instance for another stream
  // Our own traces have no host: `other` lasts until the next operation is ready, `kernel_wait` from then on.
};
inline constexpr int kIdleReasons = 3;
std::string_view name_of(IdleReason reason);

// Gaps below this are overhead. HTA compares its times, which are microseconds, with 30 (and calls it nanoseconds).
inline constexpr Nanos kShortGap{30'000};

struct IdleTime {
  std::int32_t device = 0;
  std::int32_t stream = kAbsent;  // kAbsent: all streams of all devices as if they were one
  EnumArray<IdleReason, Nanos, kIdleReasons> time{};
  EnumArray<IdleReason, std::int64_t, kIdleReasons> gaps{};
  Nanos total() const { return time[0] + time[1] + time[2]; }
};

// `activities` are the indices into trace.device that count, ascending. First all streams as one, whose total is the
// idle time of RankBreakdown where nothing but these activities runs; then every stream by device and number.
std::vector<IdleTime> idle_times(const DeviceTrace& trace, const std::vector<std::int32_t>& activities);

}  // namespace weft
