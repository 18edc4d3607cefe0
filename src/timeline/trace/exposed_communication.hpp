// When a rank of a device trace communicated without computing, and why.
//
// An instant is exposed where a communication runs and no computation does. Where several communications run, it
// counts for the one that ends last (ties: the earlier in the trace). Each exposed instant has one reason, so reasons
// add up to the exposed time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "timeline/trace/covered_time.hpp"
#include "timeline/trace/device_order.hpp"
#include "timeline/trace/device_precedence.hpp"

namespace weft {

// Asked in this order of every exposed instant; docs/analyze.md says how each is found. All but the first speak of the
// computation that came next.
enum class ExposedReason : std::uint8_t {
  late_peer,     // another rank had not begun the collective yet
  nothing_left,  // no computation came after it
  host_wait,     // not launched yet: the thread that launches it waited for the device
  late_launch,   // not launched yet: the host came late
  one_stream,    // launched, but on a stream where communication was in front of it
  stream_order,  // launched, but behind a copy; or the communication itself had waited its turn behind another
  dependency,    // launched, and it waited for this communication
  launch_delay,  // launched, and nothing that the trace knows was in its way
  other_wait     // our own traces: it waited for something else, such as a message from another stage
};
inline constexpr int kExposedReasons = 9;
std::string_view name_of(ExposedReason reason);

struct DeviceExposure {
  Nanos begin, end;
  std::int32_t activity = 0;     // the communication; index into DeviceTrace::device, as the next two
  std::int32_t next = kAbsent;   // the computation that came next
  std::int32_t cause = kAbsent;  // one_stream, stream_order: what was in front; host_wait: what the host waited for
  std::int32_t peer = kAbsent;   // late_peer: who came last; index into the ranks that are looked at
  ExposedReason reason = ExposedReason::dependency;
  friend bool operator==(const DeviceExposure&, const DeviceExposure&) = default;
};

// When the last member of a collective began it, on this rank's clock.
struct PeerStart {
  std::int32_t activity = 0;
  std::int32_t peer = 0;           // index into the ranks that are looked at
  std::int32_t peer_activity = 0;  // the same collective there; index into that rank's DeviceTrace::device
  Nanos start;
};

struct ExposedCommunication {
  CoveredTime computation, communication;
  std::vector<DeviceExposure> stretches;  // by begin; disjoint; of equal facts where they touch: one
  Nanos total() const;
};

// `peers` by activity, those that began later than this rank only; empty where only one rank is known. O(n log n).
ExposedCommunication find_exposed(const DeviceTrace& trace, const DeviceOrder& order,
                                  const DevicePrecedence& precedence, const std::vector<PeerStart>& peers = {});

}  // namespace weft
