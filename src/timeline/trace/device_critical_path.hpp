// The chain that decided when a device trace ended: from the last end back through stream order, waits between streams,
// launches, the host's own work, its waits for the device, and late members of collectives on other ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "timeline/trace/device_order.hpp"
#include "timeline/trace/exposed_communication.hpp"

namespace weft {

enum class PathKind : std::uint8_t {
  computation,
  communication,
  memory,
  launch_delay,  // from the beginning of the call that launches to the start on the device
  device_gap,    // from the end of what was waited for to the start: the device had it, and it did not run yet
  host,          // the host works towards the next launch
  host_wake,     // from the end of what the host waited for to the return of its call
  unknown        // the trace does not say what was waited for
};
inline constexpr int kPathKinds = 8;
std::string_view name_of(PathKind kind);

struct PathSegment {
  PathKind kind = PathKind::unknown;
  std::int32_t rank = 0;          // index into the ranks given
  std::int32_t index = kAbsent;   // of an activity in `device` (the three kernels, launch_delay and device_gap: what
                                  // starts then) or in `host` (host_wake: the call); kAbsent: none in particular
  Nanos begin, end;               // on the clock of the first rank
  std::int32_t thread = kAbsent;  // of `host`: who worked; index into DeviceTrace::threads
  friend bool operator==(const PathSegment&, const PathSegment&) = default;
};

struct PathRank {
  const DeviceTrace* trace = nullptr;
  const DeviceOrder* order = nullptr;
  const std::vector<PeerStart>* peers = nullptr;  // may be null
  Nanos offset;                                   // to the clock of the first rank
};

// The path from first to last, without gaps, from `begin` to `end`; where these are kNoTime, from the earliest start to
// the latest end of the activities looked at. Empty without activities. O(n log n).
std::vector<PathSegment> device_critical_path(const std::vector<PathRank>& ranks, Nanos begin = kNoTime,
                                              Nanos end = kNoTime);

EnumArray<PathKind, Nanos, kPathKinds> path_time_by_kind(const std::vector<PathSegment>& path);

}  // namespace weft
