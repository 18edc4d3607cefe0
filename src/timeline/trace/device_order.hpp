// What had to precede what in a device trace: the order on streams, waits between streams, and the host waiting for the
// device. A profiler gives the first. It gives the second where it records synchronisation; otherwise the runtime calls
// suggest it (docs/analyze.md). The third follows from calls that last until something on the device ends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "timeline/trace/device_trace.hpp"

namespace weft {

struct DeviceStream {
  std::int32_t device = 0, stream = 0;   // as the trace numbers them
  std::vector<std::int32_t> activities;  // by start; indices into DeviceTrace::device
};

// Where the waits between streams come from.
enum class WaitSource : std::uint8_t {
  none,      // nothing is known of them
  inferred,  // from runtime calls, whose events and streams the trace does not name
  recorded   // the trace says who waited for whom
};
std::string_view name_of(WaitSource source);

// A call that kept its thread until `activity` had ended.
struct HostWait {
  std::int32_t thread = 0;
  std::int32_t call = 0;      // index into DeviceTrace::host
  std::int32_t activity = 0;  // index into DeviceTrace::device; the last that ended within the call
  Nanos start, end;           // of the call
};

struct DeviceOrder {
  std::vector<std::int32_t> activities;  // that are looked at; ascending, so by start
  std::vector<DeviceStream> streams;     // by device, then stream
  std::vector<std::int32_t> stream;      // by activity: index into `streams`; kAbsent: not looked at
  std::vector<std::int32_t> place;       // by activity: position on its stream
  std::vector<DeviceDependency> waits;   // between streams; by `after`, then `before`
  std::vector<HostWait> host_waits;      // by thread, then end
  WaitSource source = WaitSource::none;

  // kAbsent: it is the first.
  std::int32_t previous_on_stream(std::int32_t activity) const;
  std::span<const DeviceDependency> waits_of(std::int32_t activity) const;
  // Of one thread, by end.
  std::span<const HostWait> host_waits_of(std::int32_t thread) const;
};

// `activities` ascending. O(n log n) in the events of the trace.
DeviceOrder order_device(const DeviceTrace& trace, std::vector<std::int32_t> activities);
// All activities.
DeviceOrder order_device(const DeviceTrace& trace);

}  // namespace weft
