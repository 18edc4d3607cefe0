#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/against/against_command.hpp"
#include "app/cli.hpp"
#include "app/commands.hpp"
#include "app/compression_input.hpp"
#include "app/device_map_input.hpp"
#include "app/flags.hpp"
#include "app/framework_inputs.hpp"
#include "app/inputs.hpp"
#include "app/lengths.hpp"
#include "app/megatron_inputs.hpp"
#include "app/network_inputs.hpp"
#include "app/output_paths.hpp"
#include "app/page/page_sources.hpp"
#include "app/plan/chakra_command.hpp"
#include "app/plan/collective_choice_report.hpp"
#include "app/plan/explain_report.hpp"
#include "app/plan/launch_gain_report.hpp"
#include "app/plan/layer_decisions.hpp"
#include "app/plan/mover_report.hpp"
#include "app/plan/plan_files.hpp"
#include "app/plan/plan_json_report.hpp"
#include "app/plan/plan_text_report.hpp"
#include "app/plan/policy_list.hpp"
#include "app/plan/sweep_command.hpp"
#include "app/plan/userbuffer_report.hpp"
#include "app/progress_bars.hpp"
#include "app/terminal.hpp"
#include "app/terminal_picture.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "planner/policy/policy.hpp"
#include "study/plan/compression_choice.hpp"
#include "study/plan/device_map_choice.hpp"
#include "study/plan/fitting_layouts.hpp"
#include "study/plan/plan_study.hpp"
#include "study/plan/reduce_every_choice.hpp"

namespace weft {
namespace {

struct ExplainedPolicy {
  std::size_t policy;  // of the study
  PlanExplanation explanation;
};

bool explains(const Flags& flags) {
  return flags.is_set("explain") || flags.is_set("explain-full");
}

// The best policy; for those who read more than a screen, all that were asked for by name.
std::vector<ExplainedPolicy> explained_policies(const Flags& flags, const PlanStudy& study, const Profile& profile) {
  std::vector<ExplainedPolicy> explained;
  if (!explains(flags)) return explained;
  const bool all = flags.given("policy") && (flags.is_set("explain-full") || flags.is_set("json"));
  for (std::size_t i = 0; i < study.policies.size(); ++i) {
    if (!all && i != study.best) continue;
    explained.push_back({i, explain_plan(study.policies[i], profile)});
    add_remedies(explained.back().explanation, study, study.policies[i], profile);
  }
  return explained;
}

Inputs read_searched_inputs(const Flags& flags, std::ostream& err, Decides decides = Decides::nothing) {
  Inputs inputs = read_inputs(flags, decides);
  for (const std::string& remark : inputs.remarks) err << fmt::format("weft: {}\n", remark);
  inputs.search_seed = static_cast<std::uint64_t>(flags.integer("seed", 0, INT64_MAX).value_or(1));
  return inputs;
}

void declare_plan_flags(Flags& flags) {
  declare_input_flags(flags);
  declare_network_flags(flags);
  flags.value("policy", "A,B,...", "policies to compare (default: all that apply)");
  flags.value("seed", "N", "of policies that search (default: 1); the same seed gives the same plan");
  flags.toggle("explain", "why communication is exposed and what would help, on one screen, of the best policy");
  flags.toggle("explain-full", "the same with every communication and what hides it, of the best or all named");
  flags.value("out", "DIR", "write plan.json, trace.json, timeline.json and report.html (a page to look at) there");
  declare_plan_file_flags(flags);
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of the report");
  flags.value("max-error", "X",
              "with --compress auto, gradients, weights or all: the largest relative error of an encoding (default: "
              "0.01)");
  declare_lengths_flag(flags);
  declare_sweep_flags(flags);
  declare_against_flags(flags);
  declare_chakra_flags(flags);
}

// Decides what is compressed.
std::optional<CompressionChoice> decide_compression(const Flags& flags, const std::vector<std::string>& policies,
                                                    const Profile& profile, Inputs& inputs) {
  const std::optional<CompressionWish> wish = read_compression_wish(flags);
  if (!wish) return std::nullopt;
  CompressionChoice choice =
      choose_compression(inputs, profile, wish->max_error, policy_to_predict_with(flags, policies), wish->budget);
  inputs.layout.compress = choice.best().compress;
  inputs.layout.compress_weights = choice.best().weights;
  return choice;
}

// Decides where ranks are, and where devices differ how many layers stages have.
std::optional<DeviceMapChoice> decide_device_map(const Flags& flags, const std::vector<std::string>& policies,
                                                 const Profile& profile, Inputs& inputs) {
  if (!chooses_device_map(flags)) return std::nullopt;
  const bool may_move_layers = (!flags.given("stage-layers") || flags.text("stage-layers") == "auto") &&
                               inputs.layout.recompute_layers.size() <= 1;  // or numbers by chunk would be of others
  DeviceMapChoice choice = choose_device_map(inputs, profile, policy_to_predict_with(flags, policies), may_move_layers);
  inputs.cluster.device_map = choice.search.best;
  if (!choice.stage_layers.empty()) inputs.layout.stage_layers = choice.stage_layers;
  return choice;
}

// Decides how often gradients are reduced.
std::optional<ReduceEveryChoice> decide_reduce_every(const Flags& flags, const std::vector<std::string>& policies,
                                                     const Profile& profile, Inputs& inputs) {
  if (flags.text("reduce-every") != "auto") return std::nullopt;
  ReduceEveryChoice choice = choose_reduce_every(inputs, profile, policy_to_predict_with(flags, policies));
  inputs.layout.reduce_every = choice.options[choice.chosen].reduce_every;
  return choice;
}

void print_compression(const CompressionChoice& choice, const std::string& flag, bool all, std::ostream& out) {
  out << fmt::format("--compress {}: {}\n", flag, compression_choice_line(choice));
  if (all) out << compression_options_text(choice);
  out << "\n";
}

nlohmann::ordered_json compression_options_json(const CompressionChoice& choice) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CompressionOption& option : choice.options) {
    nlohmann::ordered_json row{{"compress", compression_flag_of(option)}, {"error", option.error()}};
    if (option.step_s > 0) {
      if (option.encodes()) row["compress_min"] = option.compress.min_elements;
      row["sent_bytes"] = option.sent.value;
      row["step_s"] = option.step_s;
    }
    row["allowed"] = option.is_allowed;
    list.push_back(row);
  }
  list[choice.chosen]["chosen"] = true;
  return list;
}

// Of Megatron's flags that none of the policies reads.
void remark_unread_flags(const Flags& flags, const std::vector<std::string>& policies, std::ostream& err) {
  for (const char* const flag : {"tp-comm-overlap", "overlap-moe-expert-parallel-comm", "delay-wgrad-compute"}) {
    const bool read = std::any_of(policies.begin(), policies.end(),
                                  [](const std::string& policy) { return facts_of(policy).reads_megatron_flags; });
    if (flags.is_set(flag) && !read) err << "weft: --" << flag << ": no policy that is planned here reads it\n";
  }
}

nlohmann::ordered_json explained_json(const PlanStudy& study, const std::vector<ExplainedPolicy>& explained) {
  nlohmann::ordered_json json = plan_json_report(study);
  for (const ExplainedPolicy& e : explained) {
    const PolicyStudy& policy = study.policies[e.policy];
    json["policies"][policy.policy]["explanation"] = explanation_json(policy, e.explanation);
  }
  return json;
}

// Adds what userbuffers take to the first policy that has them, and says it in words.
std::string explain_userbuffers(const PlanStudy& study, const Profile& profile, nlohmann::ordered_json& json) {
  const std::size_t found = policy_with_userbuffers(study, profile);
  if (found == study.policies.size()) return "";
  const std::string& policy = study.policies[found].policy;
  const std::vector<UserbufferRow> rows = userbuffer_rows(study.policies[found].plan(), profile);
  json["policies"][policy]["userbuffers"] = userbuffer_json(rows);
  return userbuffer_text(policy, rows);
}

// The page always says why communication is exposed, of the best policy; what would help takes a search, which
// --explain asks for.
nlohmann::ordered_json page_json(const PlanStudy& study, nlohmann::ordered_json json, const Profile& profile) {
  const PolicyStudy& best = study.policies[study.best];
  nlohmann::ordered_json& policy = json["policies"][best.policy];
  if (!policy.contains("explanation")) policy["explanation"] = explanation_json(best, explain_plan(best, profile));
  return json;
}

void print_explained(const Flags& flags, const PlanStudy& study, const std::vector<ExplainedPolicy>& explained,
                     const std::string& gain, std::ostream& out) {
  const bool full = flags.is_set("explain-full");
  const bool one_screen = flags.is_set("explain") && !full;
  out << (one_screen ? explanation_screen(study, study.best, explained.front().explanation, columns_of(out))
                     : with_emphasis(plan_text_report(study, columns_of(out)), study.policies[study.best].policy, out));
  out << gain << terminal_steps(study, out);
  if (!full) return;
  for (const ExplainedPolicy& e : explained)
    out << "\n" << explanation_text(study.policies[e.policy], e.explanation, columns_of(out));
}

}  // namespace

int run_plan_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Flags flags(
      "plan",
      "Plans one training step: step time, what is exposed and why, memory, the bound.\n"
      "Exit code 0: a policy has a plan that fits in memory; 1: none fits, or one of them has no plan; 2: bad input.",
      "weft plan --model llama2-70b --cluster dgx-a100:8 --tp 8 --pp 4 --global-batch 128 --zero 1 --out out/plan");
  declare_plan_flags(flags);
  flags.parse(arguments);

  if (flags.given("against")) return run_against_command(flags, out, err);
  if (flags.given("chakra")) return run_chakra_command(flags, out, err);
  if (flags.given("comm-groups")) fail("--comm-groups: belongs to --chakra, which is not given");
  if (flags.given("where")) fail("--where: belongs to --against, which is not given");
  const bool names_policies = flags.given("policy");
  const std::vector<IgnoredFlag> ignored = apply_launch(flags);
  if (!ignored.empty()) print_ignored(err, *launch_file(flags), ignored);
  apply_framework_defaults(flags);
  require_outputs_can_be_written(flags, {"out"}, {"csv"});
  const PlanFileOptions file_options = read_plan_file_options(flags);
  std::vector<std::string> policies = read_policies(flags);
  const std::vector<std::int64_t> lengths = read_lengths(flags);
  const std::optional<CompressionWish> wish = read_compression_wish(flags);
  if (wish && (flags.given("sweep") || !lengths.empty())) {
    fail("--compress {}: is not for --{}; give a format", wish->flag, lengths.empty() ? "sweep" : "lengths");
  }
  if (!lengths.empty()) {
    for (const char* other : {"sweep", "explain", "explain-full"}) {
      if (flags.given(other)) fail("--lengths: is not for --{}; give --seq", other);
    }
    return run_plan_of_lengths(flags, read_searched_inputs(flags, err), lengths, policies, out, err);
  }
  if (flags.given("sweep") && explains(flags)) {
    fail("--explain: is not for --sweep; explain one combination of it by its own flags");
  }
  // A search for every row of a sweep is for those who ask for it.
  if (flags.given("sweep") && !flags.given("policy"))
    std::erase_if(policies, [](const auto& p) { return searches(p); });
  if (flags.given("sweep")) return run_sweep_command(flags, policies, ignored, out, err);
  require_no_sweep_flags(flags);
  remark_unread_flags(flags, policies, err);
  const std::string launched = names_policies ? "" : flags.text("policy").value_or("");
  if (!launched.empty()) policies = policies_beside(launched);
  const Profile profile = read_profile(flags);
  Inputs inputs = read_searched_inputs(flags, err, Decides::everything);
  inputs.launch_flags = model_flags_of(ignored);
  const std::optional<DeviceMapChoice> devices = decide_device_map(flags, policies, profile, inputs);
  const std::optional<ChunkPlacementChoice> placement = decide_chunk_placement(flags, policies, profile, inputs);
  const std::optional<StageLayersChoice> stages = decide_stage_layers(flags, policies, profile, inputs);
  const std::optional<RecomputeLayersChoice> recomputed = decide_recompute_layers(flags, policies, profile, inputs);
  const std::optional<CompressionChoice> compression = decide_compression(flags, policies, profile, inputs);
  const std::optional<ReduceEveryChoice> reduced = decide_reduce_every(flags, policies, profile, inputs);
  PlanStudy study = study_plan(inputs, policies, profile, progress_bars(terminal_of(err)));
  for (const std::string& note : study.notes) err << fmt::format("weft: {}\n", note);
  const bool fits = study.policies[study.best].fits;
  if (!fits) study.would_fit = find_fitting_layouts(study, profile);
  const std::vector<ExplainedPolicy> explained = explained_policies(flags, study, profile);
  const std::optional<LaunchGain> gain = gain_over_launch(study, launched);
  nlohmann::ordered_json json = explained_json(study, explained);
  std::vector<CollectiveChoice> choices;
  if (explains(flags) && has_program_choice(inputs)) {
    choices = collective_choices(study, study.best, profile);
    json["policies"][study.policies[study.best].policy]["collective_choices"] = collective_choice_json(choices);
  }
  std::vector<MovedTransfers> movers;
  if (explains(flags) && profile.movers == MoverWish::chosen) {
    movers = mover_choices(study, study.best, profile);
    json["policies"][study.policies[study.best].policy]["movers"] = mover_json(movers);
  }
  std::string userbuffers;
  if (explains(flags) && inputs.options.tp_comm_overlap) userbuffers = explain_userbuffers(study, profile, json);
  add_launch_gain(json, gain);
  add_ignored_flags(json, ignored);
  if (compression) json["compression"] = compression_choice_line(*compression);
  if (compression && explains(flags)) json["compression_options"] = compression_options_json(*compression);
  if (reduced) json["reduce_every"] = reduce_every_line(*reduced);
  if (placement) json["chunk_placement"] = chunk_placement_line(*placement);
  if (stages) json["stage_layers"] = stage_layers_line(*stages);
  if (recomputed) json["recompute_layers"] = recompute_layers_line(*recomputed);
  if (devices) json["device_map"] = device_map_line(*devices);
  WrittenFiles written;
  if (const auto folder = flags.text("out")) {
    written = write_plan_files(study, *folder, file_options);
    written.names.push_back(write_report_file(*folder, source_of_plans(study, page_json(study, json, profile))));
  }
  if (flags.is_set("json")) {
    out << json_text(json, 2) << "\n";
  } else {
    if (devices) out << fmt::format("--device-map auto: {}\n\n", device_map_line(*devices));
    if (placement) out << fmt::format("--schedule auto: {}\n\n", chunk_placement_line(*placement));
    if (stages) out << fmt::format("--stage-layers auto: {}\n\n", stage_layers_line(*stages));
    if (recomputed) out << fmt::format("--recompute-layers auto: {}\n\n", recompute_layers_line(*recomputed));
    if (reduced) out << fmt::format("--reduce-every auto: {}\n\n", reduce_every_line(*reduced));
    if (compression) print_compression(*compression, wish->flag, explains(flags), out);
    print_explained(flags, study, explained, launch_gain_line(gain), out);
    if (!choices.empty()) out << collective_choice_text(choices);
    if (!movers.empty()) out << mover_text(movers);
    out << userbuffers;
    out << written_line(written);
  }
  return fits && study.failed.empty() ? kOk : kAnswerIsNo;
}

}  // namespace weft
