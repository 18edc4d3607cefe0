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
  // The beginning of the uninterrupted work of the thread in which t lies (or that ended at t); t itself where it did
  // nothing then.
  Nanos work_begin(std::int32_t thread, Nanos t) const;
  // Who worked last before t: when that work ended. The thread itself where several ended then.
  Moment last_work(std::int32_t thread, Nanos t) const;

 private:
  std::vector<CoveredTime> work_;  // by thread
};

}  // namespace weft
