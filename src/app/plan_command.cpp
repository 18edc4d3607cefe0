#include "app/plan_command.hpp"

#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/flags.hpp"
#include "app/inputs.hpp"
#include "app/megatron_inputs.hpp"
#include "app/plan_files.hpp"
#include "app/plan_json_report.hpp"
#include "app/plan_study.hpp"
#include "app/plan_text_report.hpp"
#include "app/policy_list.hpp"
#include "app/sweep_command.hpp"
#include "app/terminal.hpp"
#include "plan/policy/policy.hpp"

namespace weft {
int run_plan_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Flags flags(
      "plan", "Plans one training step: step time, what is exposed and why, memory, the bound.",
      "weft plan --model llama2-70b --cluster dgx-a100:8 --tp 8 --pp 4 --global-batch 128 --zero 1 --out out/plan");
  declare_input_flags(flags);
  flags.value("policy", "A,B,...", "policies to compare (default: all that apply)");
  flags.value("out", "DIR", "write plan.json, trace.json and timeline.json there (a trace opens at ui.perfetto.dev)");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of the report");
  declare_sweep_flags(flags);
  flags.parse(arguments);

  const std::vector<IgnoredFlag> ignored = apply_megatron_args(flags);
  if (!ignored.empty()) print_ignored(err, *flags.text("megatron-args"), ignored);
  std::vector<std::string> policies = read_policies(flags);
  // A search for every row of a sweep is for those who ask for it.
  if (flags.given("sweep") && !flags.given("policy"))
    std::erase_if(policies, [](const auto& p) { return searches(p); });
  if (flags.given("sweep")) return run_sweep_command(flags, policies, ignored, out, err);
  require_no_sweep_flags(flags);
  PlanStudy study = study_plan(read_inputs(flags), policies, read_profile(flags), terminal_of(err));
  std::vector<std::string> written;
  if (const auto folder = flags.text("out")) written = write_plan_files(study, *folder);
  if (flags.on("json")) {
    nlohmann::ordered_json json = plan_json_report(study);
    add_ignored_flags(json, ignored);
    out << json.dump(2) << "\n";
  } else {
    out << plan_text_report(study) << written_line(written);
  }
  return kOk;
}

}  // namespace weft
