// Builds DeviceTraces from the events of a Chrome trace that chrome_trace.hpp wrote, one for each process (rank) of the
// file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/trace/name_table.hpp"
#include "io/trace/trace_event.hpp"
#include "timeline/trace/device_trace.hpp"

namespace weft {

class WeftTraceBuilder {
 public:
  void add(const ParsedEvent& event);
  // Returns the traces by process. `about` has the file's name and warnings.
  std::vector<DeviceTrace> finish(const DeviceTrace& about);

 private:
  struct FlowEnd {
    Nanos at;
    std::int32_t stream = 0;
  };
  struct FlowEnds {
    std::vector<std::pair<std::int64_t, FlowEnd>> from, to;  // by id
  };
  struct Process {
    DeviceTrace trace;
    NameTable names;
    FlowEnds flows;
    std::map<std::int64_t, std::int32_t> step_of;  // by iteration: index into `steps`
    std::vector<StepMark> steps;
    std::map<std::vector<std::int64_t>, std::int32_t> collectives;
    std::string name;
  };

  void add_activity(const ParsedEvent& event, Process& process);
  static DeviceTrace finish_process(Process& process, const DeviceTrace& about);

  std::map<std::int64_t, Process> processes_;
  std::int64_t events_ = 0;
};

}  // namespace weft
