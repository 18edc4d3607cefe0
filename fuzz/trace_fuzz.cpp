// Bytes as a trace, plain or gzip: the reader answers with traces or an Error, never anything else; its indices are in
// range, its lists sorted, and every number that is computed from them has an answer.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "io/trace/device_trace_reader.hpp"
#include "timeline/trace/trace_breakdown.hpp"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

bool within(std::int32_t index, std::size_t size) {
  return index == weft::kAbsent || (index >= 0 && static_cast<std::size_t>(index) < size);
}

void check_activity(const weft::DeviceTrace& trace, const weft::DeviceActivity& activity) {
  require(activity.name >= 0 && within(activity.name, trace.names.size()));
  require(within(activity.launch, trace.host.size()) && within(activity.step, trace.steps.size()));
  require(within(activity.collective, trace.collectives.size()));
  require(activity.start <= activity.end);
}

void check(const weft::DeviceTrace& trace) {
  for (std::size_t i = 0; i < trace.device.size(); ++i) {
    check_activity(trace, trace.device[i]);
    require(i == 0 || trace.device[i - 1].start <= trace.device[i].start);
  }
  for (const weft::DeviceActivity& mark : trace.stream_marks) check_activity(trace, mark);
  for (const weft::HostActivity& activity : trace.host) {
    require(activity.name >= 0 && within(activity.name, trace.names.size()));
    require(activity.thread >= 0 && within(activity.thread, trace.threads.size()));
    require(within(activity.collective, trace.collectives.size()));
  }
  for (const weft::SyncActivity& sync : trace.syncs) {
    require(within(sync.call, trace.host.size()) && within(sync.record_call, trace.host.size()));
  }
  for (const weft::CollectiveFacts& facts : trace.collectives) {
    require(facts.name >= 0 && within(facts.name, trace.names.size()) && within(facts.dtype, trace.names.size()));
    require(within(facts.group_name, trace.names.size()) && within(facts.group_ranks, trace.rank_lists.size()));
  }
  for (const weft::DeviceDependency& dependency : trace.dependencies) {
    require(dependency.before >= 0 && within(dependency.before, trace.device.size()));
    require(dependency.after >= 0 && within(dependency.after, trace.device.size()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<weft::DeviceTrace> traces;
  try {
    traces = weft::device_traces_of_bytes({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  } catch (const weft::Error&) {
    return 0;
  }
  const bool without_last = weft::leaves_out_last_step(traces);
  std::vector<weft::RankBreakdown> ranks;
  for (const weft::DeviceTrace& trace : traces) {
    check(trace);
    ranks.push_back(weft::break_down(trace, without_last));
    weft::summarize_kernels(trace, without_last);
  }
  weft::sum_kernel_types(ranks);
  return 0;
}
