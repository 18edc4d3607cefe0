#include "app/against/fit_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <thread>

#include "app/against/fit_report.hpp"
#include "app/against/measured_rows.hpp"
#include "app/cli.hpp"
#include "app/files.hpp"
#include "app/inputs.hpp"
#include "app/network_inputs.hpp"
#include "app/output_paths.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/parallel.hpp"

namespace weft {
namespace {

constexpr std::size_t kLeastRows = 3;

Flags fit_flags() {
  Flags flags(
      "calibrate",
      "Fits a profile's constants to a table of measured runs, and says how far off rows are that were left out "
      "of the fit (docs/against.md).",
      "weft calibrate --from runs.csv --framework nanotron --model llama3-8b --cluster dgx-h100 --out out/fit");
  constexpr const char* kFit = "Measured runs";
  declare_input_flags(flags);
  declare_network_flags(flags);
  flags.value("from", "FILE", "the table", kFit);
  flags.value("where", "COLUMN=VALUE,...", "of that table, only rows that say so", kFit);
  flags.value("policy", "NAME", "that the runs overlap by (default: the framework's)");
  flags.value("jobs", "N", "threads (default: cores)");
  flags.value("out", "DIR", "write profile.json there, for --profile");
  flags.value("csv", "FILE", "write the errors of every row there");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of the report");
  return flags;
}

struct FitRows {
  std::vector<MeasuredStep> steps;
  std::vector<std::int64_t> lines;
  std::size_t without_plan = 0;
  std::string reason;  // of the first of those
};

// Rows that finished and have a plan.
FitRows read_fit_rows(const Flags& flags, const std::string& file, const Profile& profile, std::size_t jobs) {
  std::vector<MeasuredRow> rows = read_measured_runs(flags, file);
  std::erase_if(rows, [](const MeasuredRow& row) { return !row.step_s || row.out_of_memory; });
  std::vector<std::optional<MeasuredStep>> steps(rows.size());
  std::vector<std::string> reasons(rows.size());
  parallel_for(rows.size(), jobs, [&](std::size_t i) {
    try {
      MeasuredStep step{read_inputs(rows[i].flags), rows[i].policy, *rows[i].step_s, rows[i].links};
      predict_run(step.inputs, with_links(profile, step.inputs, step.links), step.policy);
      steps[i] = std::move(step);
    } catch (const Error& error) {
      reasons[i] = fmt::format("line {}: {}", rows[i].line, error.what());
    }
  });
  FitRows fit;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (steps[i]) {
      fit.steps.push_back(std::move(*steps[i]));
      fit.lines.push_back(rows[i].line);
    } else if (fit.without_plan++ == 0) {
      fit.reason = reasons[i];
    }
  }
  if (fit.steps.size() < kLeastRows) {
    fail("--from {}: {} rows have a measured step and a plan, a fit needs {}{}{}", file, fit.steps.size(), kLeastRows,
         fit.reason.empty() ? "" : "; ", fit.reason);
  }
  return fit;
}

}  // namespace

bool asks_for_fit(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& word) { return word == "--from" || word.starts_with("--from="); });
}

int run_fit_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Flags flags = fit_flags();
  flags.parse(arguments);
  require_outputs_can_be_written(flags, {"out"}, {"csv"});
  const std::string file = *flags.text("from");
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  const auto jobs = static_cast<std::size_t>(flags.integer("jobs", 1, 1024).value_or(cores));
  const Profile profile = read_profile(flags);
  const FitRows rows = read_fit_rows(flags, file, profile, jobs);
  const ProfileFit fit = fit_profile(rows.steps, profile, jobs);
  const nlohmann::ordered_json fitted =
      fitted_profile_json(fit, fmt::format("weft calibrate --from {}: {} rows", file, rows.steps.size()));
  std::vector<std::string> written;
  if (const auto csv = flags.text("csv")) {
    write_text_file(*csv, [&](std::ostream& table) { write_fit_csv(table, fit, rows.lines); });
    written.push_back(*csv);
  }
  if (const auto folder = flags.text("out")) {
    make_folder(*folder);
    written.push_back((std::filesystem::path(*folder) / "profile.json").string());
    write_text_file(written.back(), [&](std::ostream& text) { text << json_text(fitted, 2) << "\n"; });
  }
  if (flags.is_set("json")) {
    nlohmann::ordered_json json = fit_json(fit, rows.lines);
    json["without_plan"] = rows.without_plan;
    json["profile"] = fitted;
    out << json_text(json, 2) << "\n";
  } else {
    out << fit_text(fit);
    if (!written.empty()) out << fmt::format("Written: {}\n", fmt::join(written, " "));
  }
  if (rows.without_plan > 0) {
    err << fmt::format("weft: {}: {} rows have no plan; the first, {}\n", file, rows.without_plan, rows.reason);
  }
  return kOk;
}

}  // namespace weft
