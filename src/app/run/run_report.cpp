#include "app/run/run_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/plan/plan_json_report.hpp"
#include "app/plan/plan_text_report.hpp"
#include "app/run/run_progress.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "graph/transfer_program.hpp"
#include "timeline/compare.hpp"

namespace weft {
namespace {

std::string time(double s) {
  return s == 0 ? "0" : format_time(nanos_from_seconds(s));
}

std::string percent(double value) {
  if (std::isnan(value)) return "-";
  return fmt::format("{:.1f} %", std::abs(value) < 0.05 ? 0 : value);  // never "-0.0 %"
}

std::string world_line(const RunStudy& study) {
  const std::string ranks = study.ranks == 1 ? "1 rank" : fmt::format("{} ranks as {}", study.ranks, study.world);
  return fmt::format("{}, {} thread{} in a kernel; durations {}\nlinks {}\n", ranks, study.threads,
                     study.threads == 1 ? "" : "s", study.profile, study.links);
}

// Where a prediction is off by more than this, the report says what differs.
constexpr double kMinExplainedErrorPct = 3;
constexpr std::size_t kKindsShown = 3;

// The kinds of operations that a rank spent most more or less time on than predicted.
std::string differences(const RunStudy& study, std::size_t columns) {
  TextTable table(
      {"policy", "error", "most different", "times a step", "predicted each", "measured each", "difference a step"});
  bool any = false;
  for (const PolicyRun& run : study.runs) {
    if (std::abs(run.prediction_error_pct()) <= kMinExplainedErrorPct) continue;
    const TimelineComparison comparison = compare_timelines(run.predicted, run.measured.timeline);
    for (std::size_t i = 0; i < std::min(kKindsShown, comparison.kinds.size()); ++i) {
      const KindComparison& kind = comparison.kinds[i];
      table.add_row({i == 0 ? run.measured.policy : "",
                     i == 0 ? fmt::format("{:+.1f} %", run.prediction_error_pct()) : "", kind.kind,
                     fmt::format("{:.0f}", kind.measured.executions), time(kind.predicted.mean_s),
                     time(kind.measured.mean_s),
                     fmt::format("{}{}", kind.difference_s() < 0 ? "-" : "+", time(std::abs(kind.difference_s())))});
      any = true;
    }
  }
  return any ? fmt::format("\n{}", table.to_string(columns)) : "";
}

// Who carries out the collectives: which of our algorithms, or the library below.
std::string collectives_lines(const RunStudy& study) {
  std::string text;
  for (const PolicyRun& run : study.runs) {
    std::vector<std::string> ways;
    for (const auto& [collective, counts] : programs_in_words(run.measured.plan().graph)) {
      for (const auto& [way, count] : counts) ways.push_back(fmt::format("{} x {} {}", count, collective, way));
    }
    if (!ways.empty()) text += fmt::format("Collectives of {}: {}\n", run.measured.policy, fmt::join(ways, ", "));
  }
  return text.empty() ? "" : fmt::format("\n{}", text);
}

// How long the host takes beside the step, and whether it starts graphs.
std::string host_line(const PolicyRun& run) {
  const HostReport& report = *run.host;
  const auto cost = [](const HostCost& each) {
    return fmt::format("{} of {}", time(seconds(each.host)), time(seconds(each.step)));
  };
  // A host that is ahead waits inside its calls until the device has room for more: that time would mislead.
  if (report.first_graph_step < 0 && report.by_calls.host.value > 0 && !report.by_calls.device_waited) {
    return fmt::format("Under {} the host is ahead of the device; no CUDA graphs: {}\n", run.measured.policy,
                       report.why);
  }
  std::string text = fmt::format("Host time of a step under {}:", run.measured.policy);
  if (report.by_calls.host.value > 0) text += fmt::format(" {} call by call;", cost(report.by_calls));
  if (report.first_graph_step < 0) return fmt::format("{} no CUDA graphs: {}\n", text, report.why);
  if (report.by_graphs.host.value > 0) text += fmt::format(" {} with CUDA graphs;", cost(report.by_graphs));
  return fmt::format("{} graphs from step {} on{}: {}\n", text, report.first_graph_step + 1,
                     report.ends_with_graphs ? "" : ", not to the end", report.why);
}

std::string host_lines(const RunStudy& study) {
  std::string text;
  for (const PolicyRun& run : study.runs) {
    if (run.host) text += host_line(run);
  }
  return text.empty() ? "" : fmt::format("\n{}", text);
}

// What ran for a few steps before the training, and what the search made of it.
std::string trial_lines(const RunStudy& study, std::size_t columns) {
  if (study.tried.empty()) return "";
  TextTable table({"tried before training", "predicted step", "measured step", "error", ""});
  for (const TriedStep& tried : study.tried) {
    table.add_row({tried.name, time(tried.predicted_s), time(tried.measured_s),
                   fmt::format("{:+.1f} %", 100 * (tried.predicted_s / tried.measured_s - 1)),
                   tried.taken ? "taken by weft" : ""});
  }
  return fmt::format("\n{}", table.to_string(columns));
}

// No step beats the bound; where one seems to, the durations behind the bound are not those of the run.
std::string below_bound(const RunStudy& study) {
  constexpr double kNoisePct = -1;
  std::vector<std::string> below;
  for (const PolicyRun& run : study.runs) {
    if (run.measured.gap_to_bound_pct < kNoisePct) below.push_back(run.measured.policy);
  }
  if (below.empty()) return "";
  return fmt::format(
      "{} {} below the bound: this machine computed faster than when it was measured (was it busy?); weft calibrate "
      "measures it again\n",
      fmt::join(below, " and "), below.size() == 1 ? "is" : "are");
}

}  // namespace

std::string too_large_line(const PolicyStudy& study) {
  return fmt::format("weft: {}: nothing is trained. {}`weft plan` with the same flags says what would fit.\n",
                     study.policy, does_not_fit_line(study));
}

std::string run_text_report(const RunStudy& study, std::size_t columns) {
  std::string text = study_heading(study.plan, false);
  text += world_line(study) + "\n";
  std::vector<std::string> heads = {"policy",     "predicted step", "measured step", "error", "compute",
                                    "slowdown",   "exposed",        "bubble",        "idle",  "hidden",
                                    "over bound", "first loss",     "last loss"};
  const bool validated = std::ranges::any_of(study.runs, [](const PolicyRun& run) { return !run.validation.empty(); });
  if (validated) heads.emplace_back("validation loss");
  const bool compressed =
      std::ranges::any_of(study.runs, [](const PolicyRun& run) { return !run.compression_errors.empty(); });
  if (compressed) heads.emplace_back("held back");
  TextTable table(heads);
  for (const PolicyRun& run : study.runs) {
    const RankAccount& a = run.measured.accounting.mean;
    std::vector<std::string> cells = {run.measured.policy,
                                      time(run.predicted_step_s),
                                      time(run.measured.step_s),
                                      fmt::format("{:+.1f} %", run.prediction_error_pct()),
                                      time(a.compute_s),
                                      time(a.slowdown_s),
                                      time(a.exposed_s),
                                      time(a.bubble_s),
                                      time(a.idle_s),
                                      percent(hidden_pct(a)),
                                      fmt::format("{:+.1f} %", run.measured.gap_to_bound_pct),
                                      loss_in_words(run.losses.front()),
                                      loss_in_words(run.losses.back())};
    if (validated) cells.push_back(run.validation.empty() ? "-" : loss_in_words(run.validation.back().loss));
    if (compressed) {
      const std::vector<double>& errors = run.compression_errors;
      cells.push_back(errors.empty() ? "-" : fmt::format("{:.3g}", errors.back()));
    }
    table.add_row(cells);
  }
  text += table.to_string(columns) + differences(study, columns) + trial_lines(study, columns) +
          collectives_lines(study) + host_lines(study);
  text += fmt::format("\nBound: {} ({})\n", time(study.plan.bound_s), study.plan.bound_explanation);
  text += below_bound(study);
  if (study.checkpoints) text += checkpoint_text(*study.checkpoints);
  return text + failed_lines(study.plan);
}

nlohmann::ordered_json host_json(const HostReport& report) {
  const auto cost = [](const HostCost& each) -> nlohmann::ordered_json {
    if (each.host.value == 0) return nullptr;
    return {{"host_s", seconds(each.host)}, {"step_s", seconds(each.step)}};
  };
  nlohmann::ordered_json json = {{"calls", cost(report.by_calls)}, {"graphs", cost(report.by_graphs)}};
  if (report.first_graph_step >= 0) json["first_graph_step"] = report.first_graph_step + 1;
  json["ends_with_graphs"] = report.ends_with_graphs;
  json["why"] = report.why;
  return json;
}

nlohmann::ordered_json trials_json(const std::vector<TriedStep>& tried) {
  auto json = nlohmann::ordered_json::array();
  for (const auto& [name, predicted_s, measured_s, taken] : tried) {
    json.push_back({{"plan", name}, {"predicted_step_s", predicted_s}, {"step_s", measured_s}, {"taken", taken}});
  }
  return json;
}

nlohmann::ordered_json run_json_report(const RunStudy& study) {
  nlohmann::ordered_json json = study_json(study.plan);
  json["world"] = {{"ranks", study.ranks}, {"threads", study.threads}, {"kind", study.world}, {"links", study.links}};
  json["profile"] = study.profile;
  if (!study.tried.empty()) json["trials"] = trials_json(study.tried);
  for (const PolicyRun& run : study.runs) {
    nlohmann::ordered_json policy = policy_json(study.plan, run.measured);
    policy["predicted_step_s"] = run.predicted_step_s;
    policy["prediction_error_pct"] = run.prediction_error_pct();
    policy["step_median_s"] = run.median_step_s();
    policy["steps_s"] = run.step_times_s;
    policy["loss"] = run.losses.back();
    policy["losses"] = run.losses;
    policy["learning_rates"] = run.learning_rates;
    if (!run.compression_errors.empty()) policy["compression_errors"] = run.compression_errors;
    if (!run.validation.empty()) {
      policy["validation"] = nlohmann::ordered_json::array();
      for (const auto& [steps, loss] : run.validation) {
        policy["validation"].push_back({{"step", steps}, {"loss", loss}});
      }
    }
    if (run.host) policy["host"] = host_json(*run.host);
    json["policies"][run.measured.policy] = policy;
  }
  if (study.checkpoints) json["checkpoints"] = checkpoint_json(*study.checkpoints);
  json["best"] = study.runs[study.best].measured.policy;
  return json;
}

}  // namespace weft
