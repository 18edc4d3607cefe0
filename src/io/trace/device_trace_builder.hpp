// Builds a DeviceTrace from the events of one rank's profiler trace.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/trace/name_table.hpp"
#include "io/trace/trace_event.hpp"
#include "timeline/trace/device_trace.hpp"

namespace weft {

class DeviceTraceBuilder {
 public:
  void add(const ParsedEvent& event);
  // What the file says about a process group outside of events, for kernels whose own list of ranks is cut or missing.
  void add_group(const std::string& name, std::vector<std::int32_t> ranks);
  // Sorted and linked, with warnings. `about` has what the file says of itself.
  DeviceTrace finish(DeviceTrace about);

 private:
  void add_device_activity(const ParsedEvent& event, std::vector<DeviceActivity>& list);
  void add_host_activity(const ParsedEvent& event, HostKind kind);
  void add_sync(const ParsedEvent& event);
  void add_step(const ParsedEvent& event, std::vector<StepMark>& steps);
  std::int32_t collective_of(const ParsedEvent& event);
  std::int32_t rank_list(const std::vector<std::int32_t>& ranks);
  std::int32_t thread_of(const ParsedEvent& event);
  void add_warnings();
  std::int32_t stream_of(const ParsedEvent& event);

  DeviceTrace trace_;
  NameTable names_;
  using CollectiveKey = std::vector<std::int64_t>;
  std::map<CollectiveKey, std::int32_t> collectives_;
  std::map<std::vector<std::int32_t>, std::int32_t> rank_lists_;
  std::map<std::string, std::vector<std::int32_t>> groups_;
  std::map<std::pair<std::string, std::string>, std::int32_t> threads_;
  std::pair<std::string, std::string> last_thread_;
  std::int32_t last_thread_number_ = kAbsent;
  std::int64_t without_time_ = 0, without_duration_ = 0, negative_ = 0, without_stream_ = 0;
};

}  // namespace weft
