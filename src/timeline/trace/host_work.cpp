#include "timeline/trace/host_work.hpp"

#include <algorithm>

namespace weft {

HostWork::HostWork(const DeviceTrace& trace) {
  std::vector<bool> launches(trace.threads.size(), false);
  for (const DeviceActivity& activity : trace.device) {
    if (activity.launch == kAbsent) continue;
    launches[trace.host[activity.launch].thread] = true;
  }
  std::vector<std::vector<TimeInterval>> intervals(trace.threads.size());
  for (const HostActivity& activity : trace.host) {
    // Annotations enclose what is no work: a whole step, or a wait for another thread.
    if (activity.kind != HostKind::runtime && activity.kind != HostKind::op) continue;
    const std::size_t thread = activity.thread;
    if (launches[thread]) intervals[thread].push_back({activity.start, activity.end});
  }
  for (std::vector<TimeInterval>& of_thread : intervals) work_.emplace_back(std::move(of_thread));
}

Nanos HostWork::work_begin(std::int32_t thread, Nanos t) const {
  const std::vector<TimeInterval>& intervals = work_[thread].intervals();
  // The first that ends at t or later.
  const auto found = std::lower_bound(intervals.begin(), intervals.end(), t,
                                      [](const TimeInterval& interval, Nanos time) { return interval.end < time; });
  return found != intervals.end() && found->begin < t ? found->begin : t;
}

HostWork::Moment HostWork::last_work(std::int32_t thread, Nanos t) const {
  Moment last;
  for (std::size_t i = 0; i < work_.size(); ++i) {
    const std::vector<TimeInterval>& intervals = work_[i].intervals();
    const auto found = std::upper_bound(intervals.begin(), intervals.end(), t,
                                        [](Nanos time, const TimeInterval& interval) { return time < interval.end; });
    if (found == intervals.begin()) continue;
    const Nanos end = (found - 1)->end;
    const bool own = static_cast<std::int32_t>(i) == thread;
    if (last.thread == kAbsent || end > last.at || (own && end == last.at)) last = {static_cast<std::int32_t>(i), end};
  }
  return last;
}

}  // namespace weft
