// Finds who waited for whom in a device trace: the two difficult parts of device_order.
#pragma once

#include "timeline/trace/device_order.hpp"

namespace weft {

// Fills `waits` and `source`; the streams must be there.
void find_stream_waits(const DeviceTrace& trace, DeviceOrder& order);
// Fills `host_waits`.
void find_host_waits(const DeviceTrace& trace, DeviceOrder& order);

// When the host began the call that launched it; kNoTime: unknown. In our own traces `issued` is when a queue reached
// the operation: no host is late there, and order is said by dependencies.
inline Nanos launched_at(const DeviceTrace& trace, const DeviceActivity& activity) {
  if (trace.source == TraceSource::weft) return kNoTime;
  if (activity.issued != kNoTime) return activity.issued;
  return activity.launch == kAbsent ? kNoTime : trace.host[activity.launch].start;
}

// The activities of every stream in the order of their launches.
class LaunchedOnStreams {
 public:
  LaunchedOnStreams(const DeviceTrace& trace, const DeviceOrder& order);
  // The last one whose launch began before t; kAbsent: none.
  std::int32_t last_before(std::int32_t stream, Nanos t) const;
  // The first one whose launch began at t or later.
  std::int32_t first_from(std::int32_t stream, Nanos t) const;
  // Index into DeviceOrder::streams; kAbsent: nothing that is looked at runs there.
  std::int32_t find(std::int32_t device, std::int32_t stream) const;

 private:
  struct Launch {
    Nanos at;
    std::int32_t activity = 0;
  };
  const DeviceOrder* order_;
  std::vector<std::vector<Launch>> launches_;  // by stream
};

}  // namespace weft
