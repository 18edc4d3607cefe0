// Finds calls that blocked the host until something on the device had ended.
#include <algorithm>
#include <tuple>

#include "timeline/trace/device_waits.hpp"

namespace weft {
namespace {

bool synchronizes(HostCall call) {
  return call == HostCall::event_synchronize || call == HostCall::stream_synchronize ||
         call == HostCall::device_synchronize;
}

class HostWaitFinder {
 public:
  HostWaitFinder(const DeviceTrace& trace, const DeviceOrder& order)
      : trace_(trace),
        order_(order),
        launched_(trace, order),
        by_end_(order.activities),
        sync_of_(trace.host.size(), kAbsent) {
    std::stable_sort(by_end_.begin(), by_end_.end(),
                     [&](std::int32_t a, std::int32_t b) { return activity(a).end < activity(b).end; });
    for (std::size_t i = 0; i < trace.syncs.size(); ++i) {
      if (trace.syncs[i].call != kAbsent) sync_of_[trace.syncs[i].call] = static_cast<std::int32_t>(i);
    }
  }

  // The activity that the call waited for last; kAbsent: all was done when it began.
  std::int32_t awaited(std::size_t call) const {
    const HostActivity& host = trace_.host[call];
    const SyncActivity* sync = sync_of_[call] == kAbsent ? nullptr : &trace_.syncs[sync_of_[call]];
    if (sync != nullptr && sync->kind == SyncKind::event_sync && sync->wait_on_stream >= 0 &&
        sync->record_call != kAbsent) {
      const std::int32_t stream = launched_.find(sync->device, sync->wait_on_stream);
      if (stream == kAbsent) return kAbsent;
      const Nanos recorded_at = trace_.host[sync->record_call].start;
      const std::int32_t marked = launched_.last_before(stream, recorded_at);
      return marked != kAbsent && ends_within(marked, host) ? marked : kAbsent;
    }
    std::int32_t stream = kAbsent;
    if (sync != nullptr && sync->kind == SyncKind::stream_sync && sync->stream >= 0) {
      stream = launched_.find(sync->device, sync->stream);
      if (stream == kAbsent) return kAbsent;
    }
    return last_ending_within(host, stream);
  }

 private:
  const DeviceActivity& activity(std::int32_t i) const { return trace_.device[i]; }
  bool ends_within(std::int32_t i, const HostActivity& call) const {
    return activity(i).end > call.start && activity(i).end <= call.end;
  }
  std::int32_t last_ending_within(const HostActivity& call, std::int32_t stream) const {
    auto i = std::upper_bound(by_end_.begin(), by_end_.end(), call.end,
                              [&](Nanos t, std::int32_t a) { return t < activity(a).end; });
    while (i != by_end_.begin()) {
      --i;
      if (activity(*i).end <= call.start) break;
      const Nanos launch = launched_at(trace_, activity(*i));
      const bool there = launch == kNoTime ? activity(*i).start < call.start : launch < call.start;
      if (there && (stream == kAbsent || order_.stream[*i] == stream)) return *i;
    }
    return kAbsent;
  }

  const DeviceTrace& trace_;
  const DeviceOrder& order_;
  LaunchedOnStreams launched_;
  std::vector<std::int32_t> by_end_;
  std::vector<std::int32_t> sync_of_;  // by call: index into syncs
};

}  // namespace

void find_host_waits(const DeviceTrace& trace, DeviceOrder& order) {
  const HostWaitFinder finder(trace, order);
  const auto add = [&](std::size_t call, std::int32_t activity) {
    const HostActivity& host = trace.host[call];
    order.host_waits.push_back({host.thread, static_cast<std::int32_t>(call), activity, host.start, host.end});
  };
  for (std::size_t h = 0; h < trace.host.size(); ++h) {
    if (!synchronizes(trace.host[h].call)) continue;
    const std::int32_t activity = finder.awaited(h);
    if (activity != kAbsent) add(h, activity);
  }
  // A copy from or to pageable memory, or one that was not asynchronous: its call ends after it.
  for (const std::int32_t i : order.activities) {
    const DeviceActivity& activity = trace.device[i];
    if (activity.kind != KernelKind::memory || activity.launch == kAbsent) continue;
    const HostActivity& call = trace.host[activity.launch];
    if (call.end >= activity.end && activity.end > call.start) add(static_cast<std::size_t>(activity.launch), i);
  }
  std::sort(order.host_waits.begin(), order.host_waits.end(), [](const HostWait& a, const HostWait& b) {
    return std::tie(a.thread, a.end, a.call, a.activity) < std::tie(b.thread, b.end, b.call, b.activity);
  });
}

}  // namespace weft
