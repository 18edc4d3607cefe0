// How a rank's device spent its time, in the numbers that Holistic Trace Analysis (HTA) prints: overlap of
// communication with computation, idle, compute and non-compute time, time by type of kernel. Its rules are kept to the
// microsecond, also where they are odd, because people compare the two; docs/analyze.md lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "timeline/trace/device_trace.hpp"

namespace weft {

// Time in which exactly these kinds of kernels ran.
struct KernelTypeTime {
  std::uint8_t kinds = 0;  // 1 computation, 2 communication, 4 memory
  Nanos time;
  double percentage = 0;  // of the sum of all rows, one decimal
};
// "COMPUTATION overlapping COMMUNICATION", as HTA writes it.
std::string kernel_type_name(std::uint8_t kinds);

struct RankBreakdown {
  std::int64_t activities = 0;  // that count; 0: all else is nothing
  Nanos kernel;                 // from the first start to the last end
  Nanos idle, compute, non_compute;
  Nanos communication, overlapped;    // of at least one communication kernel; beside computation
  std::optional<double> overlap_pct;  // nothing without communication
  // Of `kernel`, two decimals; nothing where that is 0.
  std::optional<double> idle_pct, compute_pct, non_compute_pct;
  std::vector<KernelTypeTime> kernel_types;  // longest first; only what occurs
};

// Like HTA it leaves out what was launched in the last profiler step, because the profiler may stop inside it, as soon
// as the traces together have two different ones. Steps of our own traces are whole, so all of them count.
bool leaves_out_last_step(std::span<const DeviceTrace> traces);
RankBreakdown break_down(const DeviceTrace& trace, bool without_last_step);

// Of all ranks together.
std::vector<KernelTypeTime> sum_kernel_types(std::span<const RankBreakdown> ranks);

// All activities of one name on a rank that count.
struct KernelSummary {
  std::int32_t name = 0;  // index into DeviceTrace::names
  KernelKind kind = KernelKind::computation;
  std::int64_t count = 0;
  Nanos total, shortest, longest;
};
// By kind, then total time, longest first.
std::vector<KernelSummary> summarize_kernels(const DeviceTrace& trace, bool without_last_step);

// Which of trace.device count; the same rule for every number.
std::vector<bool> counted_activities(const DeviceTrace& trace, bool without_last_step);

}  // namespace weft
