// Builds small device traces for tests: streams of activities, the calls that launch them, what waits for what. Times
// are nanoseconds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "timeline/trace/device_trace.hpp"

namespace weft::test {

// Activities must be added by start, calls too, as the trace's lists are sorted.
class TestDeviceTrace {
 public:
  explicit TestDeviceTrace(std::int32_t rank = 0) { trace_.rank = Rank{rank}; }

  std::int32_t activity(KernelKind kind, std::int32_t stream, std::int64_t start, std::int64_t end,
                        const std::string& name) {
    DeviceActivity activity;
    activity.kind = kind;
    activity.stream = stream;
    activity.start = Nanos{start};
    activity.end = Nanos{end};
    activity.name = this->name(name);
    trace_.device.push_back(activity);
    return static_cast<std::int32_t>(trace_.device.size()) - 1;
  }
  std::int32_t compute(std::int32_t stream, std::int64_t start, std::int64_t end, const std::string& name = "gemm") {
    return activity(KernelKind::computation, stream, start, end, name);
  }
  std::int32_t communicate(std::int32_t stream, std::int64_t start, std::int64_t end,
                           const std::string& name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL") {
    return activity(KernelKind::communication, stream, start, end, name);
  }
  std::int32_t copy(std::int32_t stream, std::int64_t start, std::int64_t end) {
    return activity(KernelKind::memory, stream, start, end, "Memcpy DtoD");
  }

  // A call of the host; of launches, the activity too.
  std::int32_t call(HostCall call, std::int64_t start, std::int64_t end, std::int32_t activity = kAbsent,
                    std::int32_t thread = 0) {
    while (static_cast<std::int32_t>(trace_.threads.size()) <= thread) {
      trace_.threads.push_back({"1", std::to_string(trace_.threads.size())});
    }
    HostActivity host;
    host.start = Nanos{start};
    host.end = Nanos{end};
    host.thread = thread;
    host.kind = HostKind::runtime;
    host.call = call;
    host.name = name("call");
    trace_.host.push_back(host);
    const auto index = static_cast<std::int32_t>(trace_.host.size()) - 1;
    if (activity != kAbsent) {
      trace_.device[activity].launch = index;
      trace_.device[activity].issued = Nanos{start};
    }
    return index;
  }
  std::int32_t launch(std::int32_t activity, std::int64_t start, std::int64_t end, std::int32_t thread = 0) {
    return call(HostCall::launch, start, end, activity, thread);
  }
  // What newer profilers record: `call` makes `stream` wait for the event that `record_call` recorded on `awaited`.
  void stream_waits(std::int32_t call, std::int32_t stream, std::int32_t record_call, std::int32_t awaited) {
    SyncActivity sync;
    sync.kind = SyncKind::stream_wait_event;
    sync.start = trace_.host[call].start;
    sync.end = trace_.host[call].end;
    sync.call = call;
    sync.record_call = record_call;
    sync.stream = stream;
    sync.wait_on_stream = awaited;
    trace_.syncs.push_back(sync);
  }
  void depends(std::int32_t before, std::int32_t after) { trace_.dependencies.push_back({before, after}); }

  std::int32_t step(std::int64_t number, std::int64_t start, std::int64_t end) {
    trace_.steps.push_back({number, Nanos{start}, Nanos{end}});
    return static_cast<std::int32_t>(trace_.steps.size()) - 1;
  }
  // NCCL's arguments.
  void collective(std::int32_t activity, const std::string& collective, const std::string& group, std::int64_t elements,
                  std::int64_t sequence = -1, std::vector<std::int32_t> ranks = {0, 1}) {
    CollectiveFacts facts;
    facts.name = name(collective);
    facts.dtype = name("Float");
    facts.element_bytes = 4;
    facts.group_name = name(group);
    facts.group_size = static_cast<std::int32_t>(ranks.size());
    const auto found = std::find(trace_.rank_lists.begin(), trace_.rank_lists.end(), ranks);
    facts.group_ranks = static_cast<std::int32_t>(found - trace_.rank_lists.begin());
    if (found == trace_.rank_lists.end()) trace_.rank_lists.push_back(std::move(ranks));
    facts.in_elements = facts.out_elements = elements;
    facts.sequence = sequence;
    trace_.collectives.push_back(facts);
    trace_.device[activity].collective = static_cast<std::int32_t>(trace_.collectives.size()) - 1;
  }

  std::int32_t name(const std::string& text) {
    const auto found = std::find(trace_.names.begin(), trace_.names.end(), text);
    if (found != trace_.names.end()) return static_cast<std::int32_t>(found - trace_.names.begin());
    trace_.names.push_back(text);
    return static_cast<std::int32_t>(trace_.names.size()) - 1;
  }
  DeviceTrace& trace() { return trace_; }
  std::vector<std::int32_t> all() const {
    std::vector<std::int32_t> indices(trace_.device.size());
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }

 private:
  DeviceTrace trace_;
};

}  // namespace weft::test
