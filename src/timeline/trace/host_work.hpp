// When the threads of a host worked, to follow the host's part of a critical path backwards.
#pragma once

#include <cstdint>
#include <vector>

#include "timeline/trace/covered_time.hpp"
#include "timeline/trace/device_trace.hpp"

namespace weft {

class HostWork {
 public:
  // Threads that launch nothing (watchdogs, loaders) are left out: nothing on the device waits for them.
  explicit HostWork(const DeviceTrace& trace);

  struct Moment {
    std::int32_t thread = kAbsent;  // kAbsent: nothing worked before
    Nanos at = kNoTime;
  };
  // Returns the beginning of the thread's uninterrupted work that contains t (or ended at t); t itself where it was
  // idle.
  Nanos work_begin(std::int32_t thread, Nanos t) const;
  // Returns which thread worked last before t and when that work ended; the given thread itself where several ended
  // then.
  Moment last_work(std::int32_t thread, Nanos t) const;

 private:
  std::vector<CoveredTime> work_;  // by thread
};

}  // namespace weft
