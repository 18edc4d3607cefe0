// How much of the exposed communication of a rank could have been hidden, beside which computation, and how much time
// perfect overlap would save at most.
#pragma once

#include <cstdint>
#include <vector>

#include "timeline/trace/exposed_communication.hpp"

namespace weft {

// Time of one computation that could have hidden a communication.
struct HidingPlace {
  std::int32_t computation = 0;  // index into DeviceTrace::device
  Nanos time;                    // of it, in which nothing else communicated
};

// One communication with exposed time.
struct Hideable {
  std::int32_t activity = 0;
  Nanos exposed;
  // Computation of the same step on other streams that neither had to precede it nor to follow it, and beside which
  // nothing communicated.
  Nanos earlier, later;
  std::vector<HidingPlace> nearest;  // as much of it as the exposed time takes, later ones first
  Nanos possible() const { return std::min(exposed, earlier + later); }
};

// The bounded quantity is the time that the trace's activities would take if computation and communication overlapped
// as much as possible within each step, with every activity as long as it was, and idle time and copies unchanged.
struct OverlapBound {
  std::vector<Hideable> communications;  // by activity
  Nanos exposed;
  // At most min(exposed, computation beside which nothing communicated) per step: then only the longer of computation
  // and communication remains.
  Nanos gain_any_order;
  // At most what is `possible` of each communication: stream order, waits and host waits stay as they are.
  Nanos gain_same_order;
};

OverlapBound bound_overlap(const DeviceTrace& trace, const DeviceOrder& order, const DevicePrecedence& precedence,
                           const ExposedCommunication& exposed);

}  // namespace weft
