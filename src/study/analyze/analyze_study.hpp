// What traces of one job say, by rank: where the time of its devices went.
#pragma once

#include <string>
#include <vector>

#include "study/progress.hpp"
#include "timeline/trace/device_trace.hpp"
#include "timeline/trace/idle_time.hpp"
#include "timeline/trace/launch_statistics.hpp"
#include "timeline/trace/trace_breakdown.hpp"

namespace weft {

// How one rank's device was kept busy.
struct DeviceUse {
  std::vector<IdleTime> idle;  // all streams as one, then each
  LaunchStatistics launches;
  std::vector<QueueLength> queues;
};

struct AnalyzeStudy {
  std::vector<DeviceTrace> traces;    // by rank; no two of one rank and label
  std::vector<RankBreakdown> ranks;   // of each trace
  std::vector<DeviceUse> use;         // of each trace
  std::vector<KernelTypeTime> types;  // of all ranks together
  bool without_last_step = false;     // as RankBreakdown has it
  std::vector<std::string> warnings;  // "FILE: what is odd or missing"
};

// Reads all files. A rank that no trace names is given the lowest free number, with a warning.
// `communication`: a regular expression, where not empty; kernels whose name it finds communicate, whatever else their
// name says. Throws Error where it is none.
std::vector<DeviceTrace> read_analyzed_traces(const std::vector<std::string>& files, const OnProgress& on_progress,
                                              const std::string& communication = "");

// Two files of the same ranks are not two ranks of one run: the first one is from before a change. Removes its traces
// from `traces` and returns them, or nothing where there are no two such files.
std::vector<DeviceTrace> take_before(const std::vector<std::string>& files, std::vector<DeviceTrace>& traces);

// Throws Error where two traces are of one rank or cannot be of one job, and where none of them has a kernel.
AnalyzeStudy study_traces(std::vector<DeviceTrace> traces);

// Whether some communication does not say how many ranks take part.
bool has_unknown_group_size(const AnalyzeStudy& study);

// Returns the indices into trace.device of the activities that count, in ascending order.
std::vector<std::int32_t> counted_indices(const DeviceTrace& trace, bool without_last_step);

}  // namespace weft
