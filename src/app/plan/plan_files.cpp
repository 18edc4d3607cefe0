#include "app/plan/plan_files.hpp"

#include <fmt/format.h>

#include "app/files.hpp"
#include "base/text.hpp"
#include "io/plan_json.hpp"
#include "io/timeline_json.hpp"
#include "io/trace/chrome_trace.hpp"
#include "sim/memory_curve.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

// One whole steady period; the counters and arrows of a longer one add nothing.
void write_trace(const PlanStudy& study, const PolicyStudy& policy, const std::filesystem::path& path) {
  TraceOptions options;
  const Timeline& timeline = policy.timeline;
  options.first_iteration = timeline.steady_first;
  options.last_iteration = options.first_iteration + timeline.periods - 1;
  options.metadata = {{"title", study.inputs.model.name + " on " + study.inputs.cluster.name},
                      {"policy", policy.policy},
                      {"links", study.inputs.cluster.emulated ? "emulated" : "modelled"}};
  write_text_file(path, [&](std::ostream& file) { write_chrome_trace(file, timeline, policy.accounting, options); });
}

// About 6 MB; a plan of more operations than that has its trace alone.
constexpr std::int64_t kMostTimelineSpans = 100'000;

std::int64_t timeline_spans(const Timeline& timeline) {
  return std::ssize(timeline.operations) * (timeline.periods + 2);
}

// The steady period, and an iteration before and after it: what it waits for, and what follows its last gap. False, and
// nothing written, where that is much.
bool write_timeline(const PlanStudy& study, const PolicyStudy& policy, const std::filesystem::path& path) {
  const Timeline& timeline = policy.timeline;
  if (timeline_spans(timeline) > kMostTimelineSpans) return false;
  TimelineFile file;
  file.timeline = expanded(timeline, timeline.steady_first - 1, timeline.steady_first + timeline.periods);
  file.timeline.memory.clear();  // the trace shows it
  file.about = {{"model", study.inputs.model.name},
                {"cluster", study.inputs.cluster.name},
                {"policy", policy.policy},
                {"links", study.inputs.cluster.emulated ? "emulated" : "modelled"}};
  write_text_file(path, [&](std::ostream& out) { write_timeline_json(out, file); });
  return true;
}

// "trace.json" of the best policy, "trace-ddp.json" of another.
std::string file_name(const PlanStudy& study, std::size_t policy, const std::string& what) {
  return what + (policy == study.best ? "" : "-" + study.policies[policy].policy) + ".json";
}

}  // namespace

std::vector<std::string> write_timeline_files(PlanStudy& study, const std::filesystem::path& folder) {
  make_folder(folder);
  std::vector<std::string> written;
  for (std::size_t i = 0; i < study.policies.size(); ++i) {
    PolicyStudy& policy = study.policies[i];
    policy.timeline.memory = memory_curve(policy.plan, policy.timeline);
    const std::filesystem::path trace = folder / file_name(study, i, "trace");
    write_trace(study, policy, trace);
    written.push_back(trace.string());
    const std::filesystem::path timeline = folder / file_name(study, i, "timeline");
    if (write_timeline(study, policy, timeline)) {
      written.push_back(timeline.string());
    } else {
      written.push_back(fmt::format("(not {}: {} spans, at most {} are written)", timeline.string(),
                                    format_count(timeline_spans(policy.timeline)), format_count(kMostTimelineSpans)));
    }
  }
  return written;
}

std::vector<std::string> write_plan_files(PlanStudy& study, const std::filesystem::path& folder) {
  make_folder(folder);
  std::vector<std::string> written;
  for (std::size_t i = 0; i < study.policies.size(); ++i) {
    const std::filesystem::path plan = folder / file_name(study, i, "plan");
    write_text_file(plan, [&](std::ostream& file) { write_plan_json(file, study.policies[i].plan); });
    written.push_back(plan.string());
  }
  for (std::string& file : write_timeline_files(study, folder)) written.push_back(std::move(file));
  return written;
}

std::string written_line(const std::vector<std::string>& files) {
  if (files.empty()) return "";
  std::string text = "\nWritten:";
  for (const std::string& name : files) text += " " + name;
  return text + "\n";
}

}  // namespace weft
