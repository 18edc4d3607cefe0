// One event of a Chrome trace as profilers write them, with the arguments that an analysis uses. The object is reused
// from event to event, so that its strings keep their memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "io/json/json_stream.hpp"
#include "timeline/trace/device_trace.hpp"

namespace weft {

enum class EventCategory : std::uint8_t {
  none,
  kernel,
  gpu_memcpy,
  gpu_memset,
  gpu_annotation,
  cuda_sync,
  runtime,  // of CUDA, HIP, the driver
  cpu_op,
  user_annotation,
  python_function,
  trace,  // the profiler's own frame
  other
};

struct ParsedEvent {
  char phase = '\0';
  EventCategory category = EventCategory::none;
  std::string category_text, name, process, thread;
  Nanos start = kNoTime;
  Nanos duration = kNoTime;
  bool fractional = false;  // the time stamp is written with a fraction
  std::int64_t flow = -1;   // "id" of flow events

  // Arguments; -1 and empty: not there.
  std::int64_t stream = -1, device = -1, correlation = -1, external = -1, bytes = -1;
  std::int64_t wait_on_stream = -1, wait_on_event = -1, record_correlation = -1;
  std::string collective, dtype, group_name, group_description, label;  // label: args.name of metadata
  std::vector<std::int32_t> group_ranks;
  bool group_ranks_cut = false;  // the profiler left some out: "[0, 1, ..., 7]"
  std::int64_t in_elements = -1, out_elements = -1, group_size = -1, sequence = -1;
  std::int64_t shape_elements = -1;  // of all "Input Dims"; read for names that begin with "nccl:"
  std::string shape_dtype;           // the first "Input type"
  // Of our own traces.
  std::int64_t iteration = -1, transfer = -1;
  Nanos issued = kNoTime, ready = kNoTime;
  std::string group;

  void clear();
};

// Reads the object that comes next. Throws Error where it is none, or where "ts" or "dur" is no number.
void read_trace_event(JsonStream& json, ParsedEvent& event);

}  // namespace weft
