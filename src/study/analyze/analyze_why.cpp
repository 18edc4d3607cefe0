#include "study/analyze/analyze_why.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"

namespace weft {
namespace {

// NVLink per direction, all links of a device together, from NVIDIA's data sheets. By what the driver's name contains.
constexpr std::pair<std::string_view, double> kDeviceLinks[] = {{"B200", 900e9}, {"H200", 450e9}, {"H100", 450e9},
                                                                {"H800", 200e9}, {"A800", 200e9}, {"A100", 300e9},
                                                                {"V100", 150e9}};

// The last step may be left out, as HTA does.
[[noreturn]] void fail_without_step(const AnalyzeStudy& study, std::int64_t step) {
  std::set<std::int64_t> numbers;
  for (const DeviceTrace& trace : study.traces) {
    const std::vector<bool> counted = counted_activities(trace, study.without_last_step);
    for (std::size_t i = 0; i < counted.size(); ++i) {
      const std::int32_t index = trace.device[i].step;
      if (counted[i] && index != kAbsent) numbers.insert(trace.steps[index].number);
    }
  }
  if (numbers.empty()) fail("--step {}: the traces mark no steps", step);
  fail("--step {}: the steps that count are {}", step, fmt::join(numbers, ", "));
}

}  // namespace

WhyReport explain_traces(const AnalyzeStudy& study, const WhyOptions& options) {
  WhyReport report;
  report.options = options;
  std::map<std::string, std::size_t> labels;
  std::vector<std::vector<StudyInput>> inputs;
  for (std::size_t t = 0; t < study.traces.size(); ++t) {
    const DeviceTrace& trace = study.traces[t];
    const auto [at, added] = labels.try_emplace(trace.label, report.labels.size());
    if (added) {
      report.labels.emplace_back().label = trace.label;
      inputs.emplace_back();
    }
    inputs[at->second].push_back({&trace, counted_indices(trace, study.without_last_step)});
    report.labels[at->second].traces.push_back(t);
  }
  bool any_path = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    report.labels[i].study = study_ranks(std::move(inputs[i]), {options.step, options.group_size});
    any_path = any_path || !report.labels[i].study.path.empty();
  }
  if (options.step && !any_path) fail_without_step(study, *options.step);
  return report;
}

std::optional<Bandwidth> link_of(const WhyReport& report, const DeviceTrace& trace, std::int64_t group_ranks) {
  if (report.options.link) return report.options.link;
  // A group larger than the node crosses links that the trace says nothing of.
  if (group_ranks <= 0 || group_ranks > static_cast<std::int64_t>(trace.devices.size())) return {};
  const std::string& name = trace.devices.front().name;
  if (name.find("PCI") != std::string::npos) return {};
  for (const auto& [part, bytes_per_second] : kDeviceLinks) {
    if (name.find(part) != std::string::npos) return Bandwidth{bytes_per_second};
  }
  return {};
}

}  // namespace weft
