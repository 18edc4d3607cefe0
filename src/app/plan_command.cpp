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
#include "io/profile_json.hpp"
#include "plan/policy/policy.hpp"

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

Profile read_profile_flag(const Flags& flags) {
  const auto file = flags.text("profile");
  return file ? read_profile(read_text_file(*file), *file, default_profile()) : default_profile();
}

PolicyOptions read_policy_options(const Flags& flags) {
  PolicyOptions options;
  options.bucket_parameters = flags.integer("bucket-size", 1, std::int64_t{1} << 50);
  options.bucket_mib = flags.number("bucket-mib", 0, 1 << 30);
  options.prefetch = static_cast<int>(flags.integer("prefetch", 0, 1000).value_or(options.prefetch));
  return options;
}

// One whole steady period; the counters and arrows of a longer one add nothing.
void write_trace(const PlanStudy& study, const PolicyStudy& policy, const std::filesystem::path& path) {
  TraceOptions options;
  const Timeline& timeline = policy.timeline;
  for (const Span& span : timeline.spans) {
    if (span.start >= timeline.steady_begin) {
      options.first_iteration = span.iteration;
      break;
    }
  }
  options.last_iteration = options.first_iteration + timeline.periods - 1;
  options.metadata = {{"title", study.inputs.model.name + " on " + study.inputs.cluster.name},
                      {"policy", policy.policy},
                      {"timeline", "predicted"},
                      {"links", study.inputs.cluster.emulated ? "emulated" : "modelled"}};
  write_text_file(path, [&](std::ostream& file) { write_chrome_trace(file, timeline, policy.accounting, options); });
}

// The best policy's files carry plain names, the others' their own.
std::vector<std::string> write_files(const PlanStudy& study, const std::filesystem::path& folder) {
  make_folder(folder);
  std::vector<std::string> written;
  for (std::size_t i = 0; i < study.policies.size(); ++i) {
    const PolicyStudy& policy = study.policies[i];
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
  flags.value("profile", "FILE", "a JSON file with measured efficiencies (docs/profile-format.md)");
  flags.value("bucket-size", "N", "parameters in a bucket of megatron-grad and -param (default: max(40M, 1M * dp))");
  flags.value("prefetch", "N", "layers that fsdp gathers ahead at --zero 3 (default: 1)");
  flags.value("bucket-mib", "MIB", "gradients in a bucket of ddp (default: 25, the first 1)");
  flags.value("out", "DIR", "write plan.json and trace.json there (a trace opens at ui.perfetto.dev)");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of the report");
  flags.parse(arguments);

  const std::vector<std::string> policies = read_policies(flags);
  Inputs inputs = read_inputs(flags);
  inputs.options = read_policy_options(flags);
  const PlanStudy study = study_plan(inputs, policies, read_profile_flag(flags));
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
