#include "app/plan/sweep_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/cli.hpp"
#include "app/files.hpp"
#include "app/inputs.hpp"
#include "app/plan/plan_files.hpp"
#include "app/plan/plan_json_report.hpp"
#include "app/plan/plan_study.hpp"
#include "app/plan/plan_text_report.hpp"
#include "app/plan/sweep.hpp"
#include "app/plan/sweep_report.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"

namespace weft {
namespace {

constexpr const char* kSweep = "Sweep";

std::vector<std::string> write_csv_files(const Flags& flags, const Sweep& sweep) {
  std::vector<std::string> names;
  if (const auto file = flags.text("csv")) names.push_back(*file);
  if (const auto folder = flags.text("out")) {
    make_folder(*folder);
    names.push_back((std::filesystem::path(*folder) / "sweep.csv").string());
  }
  for (const std::string& name : names) {
    write_text_file(name, [&](std::ostream& file) { write_sweep_csv(file, sweep); });
  }
  return names;
}

PlanStudy study_best(const Flags& flags, const Sweep& sweep, const SweepRow& row, const Profile& profile) {
  const std::size_t policy = sweep.spec.find("policy");
  return study_plan(read_inputs(flags_of(flags, sweep.spec, row.choice)),
                    {sweep.spec.keys[policy].values[row.choice[policy]]}, profile);
}

int report_nothing_feasible(const Flags& flags, const Sweep& sweep, std::ostream& out) {
  if (flags.on("json")) {
    nlohmann::ordered_json json;
    json["version"] = kVersion;
    json["best"] = nullptr;
    json["sweep"] = sweep_json(sweep);
    out << json_text(json, 2) << "\n";
  } else {
    out << sweep_text_report(sweep, 0);
  }
  return kAnswerIsNo;
}

}  // namespace

void declare_sweep_flags(Flags& flags) {
  flags.value("sweep", "KEY=A,B;...", "try every combination, e.g. \"tp=1,2,4;micro-batch=1..4;nic=400Gb/s,800Gb/s\"",
              kSweep);
  flags.value("jobs", "N", "threads of a sweep (default: all cores)", kSweep);
  flags.value("top", "N", "rows of a sweep to show (default: 20)", kSweep);
  flags.value("csv", "FILE", "write every combination of a sweep there", kSweep);
}

void require_no_sweep_flags(const Flags& flags) {
  for (const char* name : {"jobs", "top", "csv"}) {
    if (flags.given(name)) fail("--{}: belongs to --sweep, which is not given", name);
  }
}

int run_sweep_command(const Flags& flags, const std::vector<std::string>& policies,
                      const std::vector<IgnoredFlag>& ignored, std::ostream& out, std::ostream& err) {
  const SweepSpec spec = parse_sweep(*flags.text("sweep"));
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  SweepOptions options;
  options.jobs = static_cast<std::size_t>(flags.integer("jobs", 1, 1024).value_or(cores));
  options.progress = terminal_of(err);
  const auto top = static_cast<std::size_t>(flags.integer("top", 0, 1'000'000).value_or(20));
  const Profile profile = read_profile(flags);
  const Sweep sweep = run_sweep(flags, spec, policies, profile, options);

  WrittenFiles written{write_csv_files(flags, sweep), {}};
  const std::vector<std::size_t> ranking = sweep.ranking();
  if (ranking.empty()) return report_nothing_feasible(flags, sweep, out);
  const SweepRow& best = sweep.rows[ranking.front()];
  PlanStudy study = study_best(flags, sweep, best, profile);
  if (const auto folder = flags.text("out")) {
    written.add(write_plan_files(study, *folder, read_plan_file_options(flags)));
  }
  if (flags.on("json")) {
    nlohmann::ordered_json json = plan_json_report(study);
    add_ignored_flags(json, ignored);
    json["sweep"] = sweep_json(sweep);
    out << json_text(json, 2) << "\n";
  } else {
    out << sweep_text_report(sweep, top) << fmt::format("\nBest: {}: verified safe.\n\n", sweep.describe(best))
        << plan_text_report(study) << written_line(written);
  }
  return kOk;
}

}  // namespace weft
