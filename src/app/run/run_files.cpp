#include "app/run/run_files.hpp"

#include <algorithm>

#include "app/files.hpp"
#include "io/plan_json.hpp"
#include "io/timeline_json.hpp"
#include "io/trace/chrome_trace.hpp"

namespace weft {
namespace {

TracePart trace_part(const Timeline& timeline, const Accounting& accounting, const char* label) {
  const std::int32_t steps = std::min(timeline.periods, kStepsInFiles);
  return {&timeline, &accounting, label, timeline.steady_first, timeline.steady_first + steps - 1};
}

void write_trace(const RunStudy& study, const PolicyRun& run, std::ostream& out) {
  TraceOptions options;
  options.metadata = {{"title", study.plan.inputs.model.name + " on " + study.plan.inputs.cluster.name},
                      {"policy", run.measured.policy},
                      {"links", study.links},
                      {"durations of the prediction", study.profile}};
  write_chrome_traces(out,
                      {trace_part(run.predicted, run.predicted_accounting, "predicted"),
                       trace_part(run.measured.timeline, run.measured.accounting, "measured")},
                      options);
}

void write_timeline(const RunStudy& study, const PolicyRun& run, std::ostream& out) {
  TimelineFile file;
  file.timeline = first_steady_steps(run.measured.timeline, kStepsInFiles);
  file.about = {{"model", study.plan.inputs.model.name},
                {"cluster", study.plan.inputs.cluster.name},
                {"policy", run.measured.policy},
                {"links", study.links}};
  write_timeline_json(out, file);
}

}  // namespace

std::vector<std::string> write_run_files(const RunStudy& study, const std::filesystem::path& folder) {
  make_folder(folder);
  std::vector<std::string> written;
  const auto write = [&](const std::string& name, const std::function<void(std::ostream&)>& content) {
    write_text_file(folder / name, content);
    written.push_back((folder / name).string());
  };
  for (std::size_t i = 0; i < study.runs.size(); ++i) {
    const PolicyRun& run = study.runs[i];
    const std::string suffix = (i == study.best ? "" : "-" + run.measured.policy) + ".json";
    write("plan" + suffix, [&](std::ostream& file) { write_plan_json(file, run.measured.plan()); });
    write("timeline" + suffix, [&](std::ostream& file) { write_timeline(study, run, file); });
    write("trace" + suffix, [&](std::ostream& file) { write_trace(study, run, file); });
  }
  return written;
}

}  // namespace weft
