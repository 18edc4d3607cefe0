#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/inputs.hpp"
#include "app/output_paths.hpp"
#include "app/page/page_sources.hpp"
#include "app/plan/explain_report.hpp"
#include "app/plan/plan_files.hpp"
#include "app/plan/plan_json_report.hpp"
#include "app/plan/plan_text_report.hpp"
#include "app/terminal.hpp"
#include "app/terminal_picture.hpp"
#include "app/verify_command.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "io/plan_json.hpp"
#include "plan/verify/verify_plan.hpp"
#include "study/plan/fitting_layouts.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {

namespace {

std::string words_of_conditions(const SavedPlan& saved, const Flags& flags) {
  std::string words;
  if (!saved.conditions) {
    words = "The file does not say what its times depend on (it is of an older weft): they are by the constants of now";
  } else if (!saved.conditions->flags.empty()) {
    words = "Times are by the constants in the file, which follow from " + saved.conditions->flags;
  }
  if (const auto profile = flags.text("profile")) {
    words += (words.empty() ? "Times are by the constants in the file" : "") + (", changed by " + *profile);
  }
  return words.empty() ? "" : words + "\n";
}

}  // namespace

int run_simulate_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream&) {
  Flags flags("simulate",
              "Simulates a saved plan, as `weft plan` wrote it or as you changed it: step time, accounting, memory,\n"
              "the bound. It is verified first; an unsafe plan is not simulated (exit code 1, as `weft verify`).",
              "weft simulate out/plan/plan.json --explain");
  flags.positional("plan", "the plan file");
  flags.value("profile", "FILE", "a JSON file with measured efficiencies (docs/profile-format.md)");
  flags.toggle("explain", "why communication is exposed and what would help, on one screen");
  flags.toggle("explain-full", "the same with every communication, what hides it and what else it could cost");
  flags.value("out", "DIR", "write trace.json, timeline.json and report.html (a page to look at) there");
  declare_plan_file_flags(flags);
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of the report");
  flags.parse(arguments);
  const auto file = flags.text("plan");
  if (!file) fail("weft simulate: name the plan file, e.g. weft simulate out/plan/plan.json");
  require_outputs_can_be_written(flags, {"out"});
  const PlanFileOptions file_options = read_plan_file_options(flags);

  SavedPlan saved = read_saved_plan(read_text_file(*file), *file);
  const Profile profile = read_profile_of_plan(flags, saved);
  // A plan that needs too much memory has a step all the same: the report says by how much it does not fit.
  CheckedPlan checked = check_plan(std::move(saved.plan), {.check_memory = false});
  if (checked.violation) {
    print_verification(out, *file, checked.violation, flags.is_set("json"));
    return kAnswerIsNo;
  }
  const auto whole = std::make_shared<const WholePlan>(std::move(*checked.whole));
  const Plan& plan = whole->plan();
  Inputs inputs{plan.model, plan.cluster, plan.layout};
  inputs.options.tp_comm_overlap = saved.conditions && saved.conditions->userbuffers;
  inputs.condition_flags = saved.conditions ? saved.conditions->flags : "";
  PlanStudy study = study_given_plans(inputs, {whole}, profile);
  const PolicyStudy& simulated = study.policies.front();
  if (!simulated.fits) study.would_fit = find_fitting_layouts(study, profile);
  std::optional<PlanExplanation> explanation;
  if (flags.is_set("explain") || flags.is_set("explain-full")) {
    explanation = explain_plan(simulated, profile);
    add_remedies(*explanation, study, simulated, profile);
  }
  nlohmann::ordered_json json = plan_json_report(study);
  json["cluster"].erase("reserve_bytes");  // a plan does not say it
  json["plan"] = *file;
  json["safe"] = true;
  if (explanation) json["policies"][simulated.policy]["explanation"] = explanation_json(simulated, *explanation);
  WrittenFiles written;
  if (const auto folder = flags.text("out")) {
    written = write_timeline_files(study, *folder, file_options);
    written.names.push_back(write_report_file(*folder, source_of_plans(study, json)));
  }
  if (flags.is_set("json")) {
    out << json_text(json, 2) << "\n";
  } else {
    out << *file << ": safe\n" << words_of_conditions(saved, flags);
    if (explanation && !flags.is_set("explain-full")) {
      out << explanation_screen(study, 0, *explanation, columns_of(out));
    } else {
      out << with_emphasis(plan_text_report(study, columns_of(out)), simulated.policy, out);
      if (explanation) out << "\n" << explanation_text(simulated, *explanation, columns_of(out));
    }
    out << terminal_steps(study, out) << written_line(written);
  }
  return simulated.fits ? kOk : kAnswerIsNo;
}

}  // namespace weft
