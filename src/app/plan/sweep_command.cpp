#include "app/plan/sweep_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/cli.hpp"
#include "app/files.hpp"
#include "app/framework_inputs.hpp"
#include "app/inputs.hpp"
#include "app/page/page_sources.hpp"
#include "app/plan/layer_decisions.hpp"
#include "app/plan/plan_files.hpp"
#include "app/plan/plan_json_report.hpp"
#include "app/plan/plan_text_report.hpp"
#include "app/plan/sweep_report.hpp"
#include "app/progress_bars.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "study/plan/plan_study.hpp"
#include "study/plan/sweep.hpp"

namespace weft {
namespace {

constexpr const char* kSweep = "Sweep";

void require_no_typed_flag_is_varied(const Flags& flags, const SweepSpec& spec) {
  for (const SweepKey& key : spec.keys) {
    if (!is_cluster_key(key.name)) {
      if (flags.typed(key.name)) fail("--{}: is given, and also varied by --sweep", key.name);
    } else if (const auto cluster = flags.text("cluster"); cluster && names_a_file(*cluster)) {
      fail("--sweep: key '{}' needs a preset such as dgx-a100:8 as --cluster, not the file {}", key.name, *cluster);
    }
  }
}

// The flags of one combination: those given, with the varied ones set.
Flags flags_of(const Flags& given, const SweepSpec& spec, const SweepChoice& choice) {
  Flags flags = given;
  for (std::size_t k = 0; k < spec.keys.size(); ++k) {
    const SweepKey& key = spec.keys[k];
    const std::string& value = key.values[choice[k]];
    if (!is_cluster_key(key.name)) {
      flags.set(key.name, value);
      // Either says the other; what a file gives is overridden.
      for (const auto& [varied, other] :
           {std::pair{"global-batch", "micro-batches"}, {"micro-batches", "global-batch"}}) {
        if (key.name == varied && flags.given(other) && !flags.typed(other)) flags.forget(other);
      }
    } else if (const auto cluster = flags.text("cluster")) {  // where it is missing, its reader says so
      flags.set("cluster", with_cluster_key(*cluster, key.name, value));
    }
  }
  apply_framework_defaults(flags);  // what they are may follow from what is varied
  return flags;
}

// Where chunks lie, how many layers stages have and compute again, where this is left to prediction; a single stage has
// all layers.
std::string decide_layers(const Flags& flags, const std::string& policy, const Profile& profile, Inputs& inputs) {
  std::vector<std::string> said;
  if (decide_chunk_placement(flags, {policy}, profile, inputs)) {
    said.push_back(fmt::format("schedule {}", name_of(inputs.layout.schedule)));
  }
  if (inputs.layout.pp > 1 && decide_stage_layers(flags, {policy}, profile, inputs)) {
    said.push_back(fmt::format("stage-layers {}", fmt::join(inputs.layout.stage_layers, ",")));
  }
  if (const auto choice = decide_recompute_layers(flags, {policy}, profile, inputs)) {
    said.push_back(fmt::format("recompute-layers {}", fmt::join(choice->best().layers, ",")));
  }
  return fmt::format("{}", fmt::join(said, " "));
}

bool decides_layers(const Flags& flags, const SweepSpec& spec) {
  return std::ranges::any_of(std::array{"schedule", "stage-layers", "recompute-layers"}, [&](const char* flag) {
    const std::size_t key = spec.find(flag);
    return flags.text(flag) == "auto" ||
           (key < spec.keys.size() && std::ranges::find(spec.keys[key].values, "auto") != spec.keys[key].values.end());
  });
}

std::string policy_of(const SweepSpec& spec, const SweepChoice& choice) {
  const std::size_t key = spec.find("policy");
  return spec.keys[key].values[choice[key]];
}

SweepSource source_of(const Flags& flags, const SweepSpec& spec, const Profile& profile) {
  const auto chosen = [&](const SweepChoice& choice) { return flags_of(flags, spec, choice); };
  SweepSource source{.model = [=](const SweepChoice& choice) { return read_model(chosen(choice)); },
                     .cluster = [=](const SweepChoice& choice) { return read_cluster(chosen(choice)); },
                     .layout =
                         [=](const SweepChoice& choice, const Cluster& cluster, Transformer& model) {
                           const Flags own = chosen(choice);
                           Layout layout = read_layout(own, model, cluster);
                           make_room_for_all(own, cluster, model, layout);
                           return layout;
                         },
                     .options = read_policy_options(flags),
                     .budget_s = read_budget(flags)};
  if (decides_layers(flags, spec)) {
    source.decide = [=, &spec, &profile](const SweepChoice& choice, Inputs& inputs) {
      return decide_layers(chosen(choice), policy_of(spec, choice), profile, inputs);
    };
  }
  return source;
}

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
  const Flags own = flags_of(flags, sweep.spec, row.choice);
  const std::string policy = policy_of(sweep.spec, row.choice);
  Inputs inputs = read_inputs(own, Decides::layers);
  decide_layers(own, policy, profile, inputs);
  return study_plan(inputs, {policy}, profile);
}

int report_nothing_feasible(const Flags& flags, const Sweep& sweep, std::ostream& out) {
  if (flags.is_set("json")) {
    nlohmann::ordered_json json;
    json["version"] = kVersion;
    json["best"] = nullptr;
    json["sweep"] = sweep_json(sweep);
    out << json_text(json, 2) << "\n";
  } else {
    out << sweep_text_report(sweep, 0, columns_of(out));
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
  require_decided(flags, Decides::layers);
  SweepSpec spec = parse_sweep(*flags.text("sweep"));
  require_no_typed_flag_is_varied(flags, spec);
  if (spec.find("policy") == spec.keys.size()) spec.keys.push_back({"policy", policies});
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  SweepOptions options;
  options.jobs = static_cast<std::size_t>(flags.integer("jobs", 1, 1024).value_or(cores));
  options.on_progress = progress_bars(terminal_of(err));
  const std::size_t top = flags.integer("top", 0, 1'000'000).value_or(20);
  const Profile profile = read_profile(flags);
  const Sweep sweep = run_sweep(spec, source_of(flags, spec, profile), profile, options);

  WrittenFiles written{write_csv_files(flags, sweep), {}};
  const std::vector<std::size_t> ranking = sweep.ranking();
  if (ranking.empty()) return report_nothing_feasible(flags, sweep, out);
  const SweepRow& best = sweep.rows[ranking.front()];
  PlanStudy study = study_best(flags, sweep, best, profile);
  nlohmann::ordered_json json = plan_json_report(study);
  add_ignored_flags(json, ignored);
  json["sweep"] = sweep_json(sweep);
  if (const auto folder = flags.text("out")) {
    written.add(write_plan_files(study, *folder, read_plan_file_options(flags)));
    written.names.push_back(write_report_file(*folder, source_of_plans(study, json)));
  }
  if (flags.is_set("json")) {
    out << json_text(json, 2) << "\n";
  } else {
    out << sweep_text_report(sweep, top, columns_of(out))
        << fmt::format("\nBest: {}: verified safe.\n\n", sweep.describe(best))
        << plan_text_report(study, columns_of(out)) << written_line(written);
  }
  return kOk;
}

}  // namespace weft
