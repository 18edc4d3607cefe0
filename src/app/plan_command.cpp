#include "app/plan_command.hpp"

#include <filesystem>

#include "app/cli.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/inputs.hpp"
#include "app/plan_json_report.hpp"
#include "app/plan_study.hpp"
#include "app/plan_text_report.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "io/chrome_trace.hpp"
#include "io/plan_json.hpp"
#include "plan/policy/policy.hpp"
#include "sim/memory_curve.hpp"

namespace weft {
namespace {

std::vector<std::string> read_policies(const Flags& flags) {
  const auto text = flags.text("policy");
  if (!text) return policy_names();
  std::vector<std::string> policies;
  for (const std::string& name : split(*text, ',')) {
    require_policy(name);
    if (std::find(policies.begin(), policies.end(), name) != policies.end()) {
      fail("--policy '{}': is named twice", name);
    }
    policies.push_back(name);
  }
  return policies;
}

// One whole steady period; the counters and arrows of a longer one add nothing.
void write_trace(const PlanStudy& study, const PolicyStudy& policy, const std::filesystem::path& path) {
  TraceOptions options;
  const Timeline& timeline = policy.timeline;
  options.first_iteration = timeline.steady_first;
  options.last_iteration = options.first_iteration + timeline.periods - 1;
  options.metadata = {{"title", study.inputs.model.name + " on " + study.inputs.cluster.name},
                      {"policy", policy.policy},
                      {"timeline", "predicted"},
                      {"links", study.inputs.cluster.emulated ? "emulated" : "modelled"}};
  write_text_file(path, [&](std::ostream& file) { write_chrome_trace(file, timeline, policy.accounting, options); });
}

// The best policy's files carry plain names, the others' their own.
std::vector<std::string> write_files(PlanStudy& study, const std::filesystem::path& folder) {
  make_folder(folder);
  std::vector<std::string> written;
  for (std::size_t i = 0; i < study.policies.size(); ++i) {
    PolicyStudy& policy = study.policies[i];
    policy.timeline.memory = memory_curve(policy.plan, policy.timeline);
    const std::string suffix = i == study.best ? "" : "-" + policy.policy;
    const std::filesystem::path plan = folder / ("plan" + suffix + ".json");
    const std::filesystem::path trace = folder / ("trace" + suffix + ".json");
    write_text_file(plan, [&](std::ostream& file) { write_plan_json(file, policy.plan); });
    write_trace(study, policy, trace);
    written.push_back(plan.string());
    written.push_back(trace.string());
  }
  return written;
}

}  // namespace

int run_plan_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream&) {
  Flags flags(
      "plan", "Plans one training step: step time, what is exposed and why, memory, the bound.",
      "weft plan --model llama2-70b --cluster dgx-a100:8 --tp 8 --pp 4 --global-batch 128 --zero 1 --out out/plan");
  declare_input_flags(flags);
  flags.value("policy", "A,B,...", "policies to compare (default: all that apply)");
  flags.value("out", "DIR", "write plan.json and trace.json there (a trace opens at ui.perfetto.dev)");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of the report");
  flags.parse(arguments);

  const std::vector<std::string> policies = read_policies(flags);
  PlanStudy study = study_plan(read_inputs(flags), policies, default_profile());
  std::vector<std::string> written;
  if (const auto folder = flags.text("out")) written = write_files(study, *folder);
  if (flags.on("json")) {
    out << plan_json_report(study).dump(2) << "\n";
    return kOk;
  }
  out << plan_text_report(study);
  if (!written.empty()) {
    out << "\nWritten:";
    for (const std::string& name : written) out << " " << name;
    out << "\n";
  }
  return kOk;
}

}  // namespace weft
