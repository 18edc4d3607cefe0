#include "app/run_report.hpp"

#include <fmt/format.h>

#include <cmath>

#include "app/files.hpp"
#include "app/plan_json_report.hpp"
#include "app/plan_text_report.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "io/chrome_trace.hpp"
#include "io/plan_json.hpp"

namespace weft {
namespace {

std::string time(double s) {
  return s == 0 ? "0" : format_time(nanos_from_seconds(s));
}

std::string percent(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.1f} %", value);
}

}  // namespace

std::string run_text_report(const RunStudy& study) {
  std::string text = study_heading(study.plan);
  text += fmt::format("{} ranks, {} thread{} in a kernel: {}; durations {}\n\n", study.ranks, study.threads,
                      study.threads == 1 ? "" : "s", study.world, study.profile);
  TextTable table({"policy", "predicted step", "measured step", "error", "compute", "slowdown", "exposed", "bubble",
                   "idle", "hidden", "over bound", "first loss", "last loss"});
  for (const PolicyRun& run : study.runs) {
    const RankAccount& a = run.measured.accounting.mean;
    table.add_row({run.measured.policy, time(run.predicted_step_s), time(run.measured.step_s),
                   fmt::format("{:+.1f} %", run.prediction_error_pct()), time(a.compute_s), time(a.slowdown_s),
                   time(a.exposed_s), time(a.bubble_s), time(a.idle_s), percent(hidden_pct(a)),
                   fmt::format("{:+.1f} %", run.measured.gap_to_bound_pct), fmt::format("{:.4f}", run.losses.front()),
                   fmt::format("{:.4f}", run.losses.back())});
  }
  text += table.to_string();
  text += fmt::format("\nBound: {} ({})\n", time(study.plan.bound_s), study.plan.bound_explanation);
  return text;
}

nlohmann::ordered_json run_json_report(const RunStudy& study) {
  nlohmann::ordered_json json = study_json(study.plan);
  json["world"] = {{"ranks", study.ranks}, {"threads", study.threads}, {"transport", study.world}};
  json["profile"] = study.profile;
  for (const PolicyRun& run : study.runs) {
    nlohmann::ordered_json policy = policy_json(study.plan, run.measured);
    policy["predicted_step_s"] = run.predicted_step_s;
    policy["prediction_error_pct"] = run.prediction_error_pct();
    policy["step_median_s"] = run.median_step_s();
    policy["steps_s"] = run.step_times_s;
    policy["loss"] = run.losses.back();
    policy["losses"] = run.losses;
    json["policies"][run.measured.policy] = policy;
  }
  json["best"] = study.runs[study.best].measured.policy;
  return json;
}

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
    write("plan" + suffix, [&](std::ostream& file) { write_plan_json(file, run.measured.plan); });
    TraceOptions options;
    options.first_iteration = run.measured.timeline.steady_first;
    options.last_iteration = options.first_iteration + std::min(run.measured.timeline.periods, 2) - 1;
    options.metadata = {{"title", study.plan.inputs.model.name + " on " + study.plan.inputs.cluster.name},
                        {"policy", run.measured.policy},
                        {"timeline", "measured"},
                        {"links", study.world}};
    write("trace" + suffix, [&](std::ostream& file) {
      write_chrome_trace(file, run.measured.timeline, run.measured.accounting, options);
    });
  }
  return written;
}

}  // namespace weft
