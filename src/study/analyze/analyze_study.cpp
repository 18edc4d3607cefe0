#include "study/analyze/analyze_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "base/error.hpp"
#include "io/trace/device_trace_reader.hpp"
#include "timeline/trace/communication_facts.hpp"
#include "timeline/trace/communication_library.hpp"
#include "timeline/trace/one_job.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

// Progress is counted in mebibytes of the files as they lie on disk.
class ReadProgress {
 public:
  ReadProgress(const OnProgress& on_progress, const std::vector<std::string>& files)
      : task_(on_progress, "reading MiB", static_cast<std::size_t>(total_mebibytes(files))) {}

  void begin_file() { reported_ = 0; }
  void report(std::int64_t read) {
    const std::int64_t done = read / kMebibyte;
    if (done > reported_) task_.advance(static_cast<std::size_t>(done - reported_));
    reported_ = std::max(reported_, done);
  }

 private:
  static std::int64_t total_mebibytes(const std::vector<std::string>& files) {
    std::int64_t sum = 0;
    for (const std::string& file : files) {
      std::error_code unknown;
      const auto size = std::filesystem::file_size(file, unknown);
      if (!unknown) sum += static_cast<std::int64_t>(size) / kMebibyte;
    }
    return sum;
  }

  TaskProgress task_;
  std::int64_t reported_ = 0;
};

// One file may have two names: a link, "./t.json".
void require_different_files(const std::vector<std::string>& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (std::size_t j = i + 1; j < files.size(); ++j) {
      std::error_code unknown;
      if (files[i] != files[j] && !std::filesystem::equivalent(files[i], files[j], unknown)) continue;
      fail("{} and {} are one file; give each rank's own trace, or compare two with --against", files[i], files[j]);
    }
  }
}

bool hold_the_same_events(const DeviceTrace& a, const DeviceTrace& b) {
  return a.events == b.events && !a.device.empty() &&
         std::equal(
             a.device.begin(), a.device.end(), b.device.begin(), b.device.end(),
             [](const DeviceActivity& x, const DeviceActivity& y) { return x.start == y.start && x.end == y.end; });
}

// For traces that do not say their rank, a copy would become another rank.
void require_different_events(const std::vector<DeviceTrace>& traces) {
  for (std::size_t i = 0; i < traces.size(); ++i) {
    for (std::size_t j = i + 1; j < traces.size(); ++j) {
      const DeviceTrace &a = traces[i], &b = traces[j];
      if (a.rank.valid() || b.rank.valid() || a.file == b.file || !hold_the_same_events(a, b)) continue;
      fail("{} and {} hold the same events; give each rank's own trace, or compare two with --against", a.file, b.file);
    }
  }
}

void name_ranks(std::vector<DeviceTrace>& traces) {
  std::set<std::int32_t> taken;
  for (const DeviceTrace& trace : traces) {
    if (trace.rank.valid()) taken.insert(trace.rank.value);
  }
  std::int32_t next = 0;
  for (DeviceTrace& trace : traces) {
    if (trace.rank.valid()) continue;
    while (taken.contains(next)) ++next;
    taken.insert(next);
    trace.rank = Rank{next};
    trace.warnings.push_back(fmt::format("neither the trace nor its name says its rank; it is taken as rank {}", next));
  }
}

void require_one_trace_per_rank(const std::vector<DeviceTrace>& traces) {
  for (std::size_t i = 1; i < traces.size(); ++i) {
    const DeviceTrace &a = traces[i - 1], &b = traces[i];
    if (a.rank != b.rank || a.label != b.label) continue;
    fail("{} and {}: both are of rank {}; give one trace per rank, or compare them with --against", a.file, b.file,
         a.rank.value);
  }
}

void require_kernels(const std::vector<DeviceTrace>& traces) {
  std::int64_t events = 0;
  for (const DeviceTrace& trace : traces) {
    if (!trace.device.empty()) return;
    events += trace.events;
  }
  fail("{}: no GPU kernels among {} events; record with ProfilerActivity.CUDA to see the device", traces.front().file,
       events);
}

std::optional<std::regex> read_regex(const std::string& text) {
  if (text.empty()) return std::nullopt;
  try {
    return std::regex(text);
  } catch (const std::regex_error&) {
    fail("--communication '{}': is no regular expression", text);
  }
}

// A name is judged once, however many kernels have it.
void take_for_communication(std::vector<DeviceTrace>& traces, const std::regex& wished, const std::string& text) {
  bool found = false;
  for (DeviceTrace& trace : traces) {
    std::vector<bool> communicates;
    for (const std::string& name : trace.names) communicates.push_back(std::regex_search(name, wished));
    for (DeviceActivity& activity : trace.device) {
      if (!communicates[static_cast<std::size_t>(activity.name)]) continue;
      activity.kind = KernelKind::communication;
      found = true;
    }
  }
  if (!found) fail("--communication '{}': no kernel of the traces has such a name", text);
}

// Says which kernels were taken for communication that are not NCCL's, by library: whoever reads the answer has to
// know.
std::vector<std::string> other_communication(const std::vector<DeviceTrace>& traces) {
  constexpr std::size_t kMostNames = 4;
  std::map<std::string, std::set<std::string>> kernels;
  for (const DeviceTrace& trace : traces) {
    if (trace.source == TraceSource::weft) continue;
    std::set<std::int32_t> seen;
    for (const DeviceActivity& activity : trace.device) {
      if (activity.kind != KernelKind::communication || !seen.insert(activity.name).second) continue;
      const std::string& name = trace.names[static_cast<std::size_t>(activity.name)];
      const std::string_view library = communication_library(name);
      if (library == "NCCL") continue;
      std::string plain = name.substr(0, name.find_first_of("(<"));
      if (plain.starts_with("void ")) plain.erase(0, 5);
      kernels[library.empty() ? "--communication" : std::string(library)].insert(std::move(plain));
    }
  }
  std::vector<std::string> words;
  for (const auto& [library, names] : kernels) {
    std::string list;
    std::size_t shown = 0;
    for (const std::string& name : names) {
      if (shown++ == kMostNames) break;
      list += (list.empty() ? "" : ", ") + name;
    }
    if (names.size() > kMostNames) list += fmt::format(" and {} more", names.size() - kMostNames);
    words.push_back(fmt::format("taken for communication, by {}: {}", library, list));
  }
  return words;
}

}  // namespace

std::vector<DeviceTrace> read_analyzed_traces(const std::vector<std::string>& files, const OnProgress& on_progress,
                                              const std::string& communication) {
  require_different_files(files);
  const std::optional<std::regex> wished = read_regex(communication);
  ReadProgress progress(on_progress, files);
  std::vector<DeviceTrace> traces;
  for (const std::string& file : files) {
    progress.begin_file();
    const auto report = [&](std::int64_t read, std::int64_t) { progress.report(read); };
    for (DeviceTrace& trace : read_device_traces(file, report)) traces.push_back(std::move(trace));
  }
  if (traces.empty()) fail("{}: it holds no rank", files.front());
  require_different_events(traces);
  name_ranks(traces);
  if (wished) take_for_communication(traces, *wished, communication);
  return traces;
}

std::vector<DeviceTrace> take_before(const std::vector<std::string>& files, std::vector<DeviceTrace>& traces) {
  if (files.size() != 2) return {};
  using Identity = std::pair<std::int32_t, std::string>;  // rank, label
  std::map<std::string, std::set<Identity>> of_file;
  for (const DeviceTrace& trace : traces) of_file[trace.file].insert({trace.rank.value, trace.label});
  if (of_file[files[0]].empty() || of_file[files[0]] != of_file[files[1]]) return {};
  const auto after = std::stable_partition(traces.begin(), traces.end(),
                                           [&](const DeviceTrace& trace) { return trace.file == files[0]; });
  std::vector<DeviceTrace> before(std::make_move_iterator(traces.begin()), std::make_move_iterator(after));
  traces.erase(traces.begin(), after);
  return before;
}

AnalyzeStudy study_traces(std::vector<DeviceTrace> traces) {
  std::stable_sort(traces.begin(), traces.end(), [](const DeviceTrace& a, const DeviceTrace& b) {
    return a.label != b.label ? a.label < b.label : a.rank < b.rank;
  });
  require_one_trace_per_rank(traces);
  for (auto first = traces.begin(); first != traces.end();) {
    const auto last =
        std::find_if(first, traces.end(), [&](const DeviceTrace& trace) { return trace.label != first->label; });
    require_one_job({first, last});
    first = last;
  }
  require_kernels(traces);
  AnalyzeStudy study;
  study.traces = std::move(traces);
  study.without_last_step = leaves_out_last_step(study.traces);
  for (const DeviceTrace& trace : study.traces) {
    study.ranks.push_back(break_down(trace, study.without_last_step));
    const std::vector<std::int32_t> counted = counted_indices(trace, study.without_last_step);
    study.use.push_back({idle_times(trace, counted), launch_statistics(trace, counted), queue_lengths(trace, counted)});
    for (const std::string& warning : trace.warnings)
      study.warnings.push_back(fmt::format("{}: {}", trace.file, warning));
    if (!trace.device.empty() && study.ranks.back().activities == 0) {
      study.warnings.push_back(
          fmt::format("{}: every kernel was launched in the last profiler step, which does not count", trace.file));
    }
  }
  for (std::string& words : other_communication(study.traces)) study.warnings.push_back(std::move(words));
  study.types = sum_kernel_types(study.ranks);
  return study;
}

bool has_unknown_group_size(const AnalyzeStudy& study) {
  for (const DeviceTrace& trace : study.traces) {
    const CommunicationTable table = communication_table(trace);
    for (std::size_t i = 0; i < trace.device.size(); ++i) {
      if (trace.device[i].kind != KernelKind::communication) continue;
      if (table.groups[table.of[i].group].size == 0) return true;
    }
  }
  return false;
}

std::vector<std::int32_t> counted_indices(const DeviceTrace& trace, bool without_last_step) {
  const std::vector<bool> counted = counted_activities(trace, without_last_step);
  std::vector<std::int32_t> indices;
  for (std::size_t i = 0; i < counted.size(); ++i) {
    if (counted[i]) indices.push_back(static_cast<std::int32_t>(i));
  }
  return indices;
}

}  // namespace weft
