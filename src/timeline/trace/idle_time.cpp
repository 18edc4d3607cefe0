#include "timeline/trace/idle_time.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/enum_name.hpp"
#include "timeline/trace/device_waits.hpp"
#include "timeline/trace/hta_times.hpp"
#include "timeline/trace/transfer_match.hpp"

namespace weft {
namespace {

constexpr EnumArray<IdleReason, std::string_view, kIdleReasons> kNames = {"host_wait", "kernel_wait", "other"};

IdleReason reason_of(const DeviceTrace& trace, const DeviceActivity& next, Nanos idle_since, Nanos gap) {
  const Nanos launch = launched_at(trace, next);
  if (launch != kNoTime && hta_start(trace, launch) > idle_since) return IdleReason::host_wait;
  return gap < kShortGap ? IdleReason::kernel_wait : IdleReason::other;
}

// Follows one stream, whose kernels begin one after the other, or several streams as one.
class GapFinder {
 public:
  GapFinder(const DeviceTrace& trace, IdleTime& result) : trace_(trace), result_(result) {}

  void add(const DeviceActivity& activity) {
    const Nanos start = hta_start(trace_, activity.start), end = hta_end(trace_, activity.start, activity.end);
    if (ended_ != kNoTime && start > ended_) {
      if (trace_.source == TraceSource::weft) {
        // A transfer begins when its last member is ready, so it waits for others up to its start.
        const bool waits = activity.kind == KernelKind::communication;
        const Nanos ready = waits ? start : std::clamp(ready_to_begin(activity), ended_, start);
        add_gap(IdleReason::other, ready - ended_);
        add_gap(IdleReason::kernel_wait, start - ready);
      } else {
        add_gap(reason_of(trace_, activity, ended_, start - ended_), start - ended_);
      }
    }
    // On a stream HTA compares with the previous kernel, even where rounding made it end too early.
    ended_ = result_.stream == kAbsent ? std::max(ended_, end) : end;
  }

 private:
  void add_gap(IdleReason reason, Nanos gap) {
    if (gap.value == 0) return;
    result_.time[reason] += gap;
    ++result_.gaps[reason];
  }

  const DeviceTrace& trace_;
  IdleTime& result_;
  Nanos ended_ = kNoTime;
};

}  // namespace

std::string_view name_of(IdleReason reason) {
  return kNames[reason];
}

std::vector<IdleTime> idle_times(const DeviceTrace& trace, const std::vector<std::int32_t>& activities) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> streams;
  for (const std::int32_t i : activities) {
    const DeviceActivity& activity = trace.device[i];
    streams[{activity.device, activity.stream}].push_back(i);
  }
  std::vector<IdleTime> result(1);
  GapFinder all(trace, result.front());
  for (const std::int32_t i : activities) all.add(trace.device[i]);
  for (const auto& [id, own] : streams) {
    IdleTime idle;
    std::tie(idle.device, idle.stream) = id;
    GapFinder stream(trace, idle);
    for (const std::int32_t i : own) stream.add(trace.device[i]);
    result.push_back(idle);
  }
  return result;
}

}  // namespace weft
