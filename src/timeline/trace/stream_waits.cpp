// Waits between streams: as the trace records them, or as the calls of each thread suggest.
#include <algorithm>
#include <tuple>

#include "timeline/trace/device_waits.hpp"

namespace weft {
namespace {

// Older profilers round times to microseconds, starts and ends alike.
constexpr Nanos kRounding{2'000};

class WaitCollector {
 public:
  WaitCollector(const DeviceTrace& trace, DeviceOrder& order) : trace_(trace), order_(order) {}

  // A wait that the times contradict (an event that was recorded again, say) is none.
  void add(std::int32_t before, std::int32_t after) {
    if (before == kAbsent || after == kAbsent || before == after) return;
    const std::int32_t stream = order_.stream[before];
    if (stream == kAbsent || stream == order_.stream[after]) return;
    const DeviceActivity& first = trace_.device[before];
    const DeviceActivity& second = trace_.device[after];
    // Equal starts have the order of their indices, so that waits never form a circle.
    if (before > after || first.end > second.start + kRounding) return;
    order_.waits.push_back({before, after});
  }

  void finish() {
    const auto less = [](const DeviceDependency& a, const DeviceDependency& b) {
      return std::tie(a.after, a.before) < std::tie(b.after, b.before);
    };
    std::sort(order_.waits.begin(), order_.waits.end(), less);
    order_.waits.erase(std::unique(order_.waits.begin(), order_.waits.end()), order_.waits.end());
  }

 private:
  const DeviceTrace& trace_;
  DeviceOrder& order_;
};

Nanos call_time(const DeviceTrace& trace, std::int32_t call, Nanos otherwise) {
  return call == kAbsent ? otherwise : trace.host[call].start;
}

// cudaEventRecord marks what its stream was given before; cudaStreamWaitEvent holds what its stream is given after.
void take_recorded(const DeviceTrace& trace, const DeviceOrder& order, WaitCollector& waits) {
  const LaunchedOnStreams launched(trace, order);
  for (const SyncActivity& sync : trace.syncs) {
    if (sync.kind != SyncKind::stream_wait_event) continue;
    const std::int32_t waiting = launched.find(sync.device, sync.stream);
    const std::int32_t awaited = launched.find(sync.device, sync.wait_on_stream);
    if (waiting == kAbsent || awaited == kAbsent) continue;
    const Nanos waits_at = call_time(trace, sync.call, sync.start);
    const Nanos recorded_at = call_time(trace, sync.record_call, waits_at);
    waits.add(launched.last_before(awaited, recorded_at), launched.first_from(waiting, waits_at));
  }
}

// What one thread of the host has done since its last launch.
struct ThreadState {
  std::int32_t last = kAbsent;  // activity that it launched last
  std::int32_t last_no_communication = kAbsent;
  std::int32_t recorded = kAbsent;    // what the last event marks, where it was recorded since that launch
  std::vector<std::int32_t> awaited;  // by events recorded just before
  bool awaits_older = false;          // an event that was recorded some time before
};

// Without names of events and streams, an event is assumed to be recorded on the stream of the launch before it and
// awaited by the stream of the launch after the wait. A wait without a record since the last launch is for an older
// event, assumed to be that of the communication launched last. A communication whose wait is not seen waits for what
// its thread launched before, because ProcessGroupNCCL always makes its stream wait for the caller's.
void infer(const DeviceTrace& trace, const DeviceOrder& order, WaitCollector& waits) {
  std::vector<std::int32_t> launched(trace.host.size(), kAbsent);
  for (const std::int32_t i : order.activities) {
    const std::int32_t launch = trace.device[i].launch;
    if (launch != kAbsent && launched[launch] == kAbsent) launched[launch] = i;
  }
  std::vector<ThreadState> threads(trace.threads.size());
  std::int32_t communication = kAbsent;
  for (std::size_t h = 0; h < trace.host.size(); ++h) {
    const HostActivity& call = trace.host[h];
    if (call.call == HostCall::none || call.call == HostCall::other) continue;
    ThreadState& state = threads[call.thread];
    if (call.call == HostCall::event_record) {
      state.recorded = state.last;
    } else if (call.call == HostCall::stream_wait_event) {
      if (state.recorded != kAbsent) {
        state.awaited.push_back(state.recorded);
      } else {
        state.awaits_older = true;
      }
    } else if (launched[h] != kAbsent) {
      const std::int32_t activity = launched[h];
      const bool communicates = trace.device[activity].kind == KernelKind::communication;
      for (const std::int32_t before : state.awaited) waits.add(before, activity);
      if (state.awaits_older) waits.add(communication, activity);
      if (communicates && state.awaited.empty()) waits.add(state.last_no_communication, activity);
      if (communicates) communication = activity;
      if (!communicates) state.last_no_communication = activity;
      state.last = activity;
      state.recorded = kAbsent;
      state.awaited.clear();
      state.awaits_older = false;
    }
  }
}

}  // namespace

void find_stream_waits(const DeviceTrace& trace, DeviceOrder& order) {
  WaitCollector waits(trace, order);
  const bool recorded = std::any_of(trace.syncs.begin(), trace.syncs.end(), [](const SyncActivity& sync) {
    return sync.kind == SyncKind::stream_wait_event && sync.wait_on_stream >= 0;
  });
  if (!trace.dependencies.empty()) {
    order.source = WaitSource::recorded;
    for (const DeviceDependency& dependency : trace.dependencies) {
      if (order.stream[dependency.after] != kAbsent) waits.add(dependency.before, dependency.after);
    }
  } else if (recorded) {
    order.source = WaitSource::recorded;
    take_recorded(trace, order, waits);
  } else {
    const bool any_launch = std::any_of(trace.device.begin(), trace.device.end(),
                                        [](const DeviceActivity& a) { return a.launch != kAbsent; });
    if (any_launch) {
      order.source = WaitSource::inferred;
      infer(trace, order, waits);
    }
  }
  waits.finish();
}

}  // namespace weft
