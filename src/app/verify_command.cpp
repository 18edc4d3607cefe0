#include "app/verify_command.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/plan/chakra_command.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"
#include "cost/framework.hpp"
#include "io/pipeline_csv.hpp"
#include "io/plan_json.hpp"
#include "plan/pipeline/receive_buffers.hpp"
#include "plan/pipeline/verify_actions.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/memory_needs.hpp"
#include "study/chakra/chakra_study.hpp"

namespace weft {

void print_verification(std::ostream& out, const std::string& file, const std::optional<Violation>& violation,
                        bool as_json) {
  if (as_json) {
    nlohmann::ordered_json json;
    json["plan"] = file;
    json["safe"] = !violation.has_value();
    if (violation) {
      json["rule"] = name_of(violation->rule);
      json["message"] = violation->message;
    }
    out << json_text(json, 2) << "\n";
  } else if (violation) {
    out << fmt::format("{}: not safe\n{}\n", file, violation->message);
  } else {
    out << fmt::format(
        "{}: safe: every operation once, transfers in one order, no deadlock, no hazard, within memory\n", file);
  }
}

namespace {

// A schedule of torch.distributed.pipelining instead of a plan; `buffers`: static receive buffers of each stage and
// direction, where it is said.
int verify_schedule(const std::string& file, std::optional<std::int64_t> buffers, bool as_json, std::ostream& out) {
  const PipelineActions actions = read_pipeline_csv(read_text_file(file), file);
  auto violation = verify_actions(actions);
  if (!violation && buffers) {
    if (!has_messages(actions)) fail("--receive-buffers: {} says no messages, which fill them", file);
    violation = find_overwritten_message(actions, *buffers);
  }
  if (as_json || violation) {
    print_verification(out, file, violation, as_json);
  } else if (has_messages(actions)) {
    out << fmt::format(
        "{}: safe: {} ranks, {} stages, every pass once, every message matched, no deadlock; static receive buffers: "
        "{} "
        "for each stage and direction are enough\n",
        file, actions.size(), stage_ranks(actions).stages(), receive_buffers_needed(actions));
  } else {
    out << fmt::format("{}: safe: {} ranks, {} stages, every pass once, no deadlock\n", file, actions.size(),
                       stage_ranks(actions).stages());
  }
  return violation ? kAnswerIsNo : kOk;
}

// Chakra's execution traces, all ranks together.
int verify_traces(const std::string& where, bool as_json, std::ostream& out) {
  const TracedStep step = read_traced_step(find_chakra_inputs(where, std::nullopt));
  const std::optional<std::string> violation = verify_traced(step);
  if (as_json) {
    nlohmann::ordered_json json{{"plan", where}, {"safe", !violation}};
    if (violation) json["message"] = *violation;
    out << json_text(json, 2) << "\n";
  } else if (violation) {
    out << fmt::format("{}: not safe\n{}\n", where, *violation);
  } else {
    out << fmt::format(
        "{}: safe: {} ranks, {} operations, every transfer matched, no deadlock in the trace's order{}\n", where,
        step.ranks.size(), step.operations.size(),
        ends_one_by_one(step) ? "" : "; but transfers of several communicators have to run beside each other");
  }
  return violation ? kAnswerIsNo : kOk;
}

// What the framework that the plan is for takes beside the plan's values, which the plan's own proof does not know.
std::optional<Violation> exceeds_memory(const Plan& plan, const Profile& profile, Bytes limit) {
  const std::vector<MemoryNeed> needs = memory_needs(plan, profile);
  for (std::size_t c = 0; c < needs.size(); ++c) {
    const Bytes available = limit.value > 0 ? limit : needs[c].available;
    if (needs[c].needed <= available) continue;
    const Bytes own = plan.classes[c].memory;
    return Violation{Rule::memory,
                     fmt::format("memory: {} needs {} but a {} has {} (values of the plan {}, {} beside them {})",
                                 plan.graph.classes[c].name, format_bytes(needs[c].needed),
                                 plan.graph.classes[c].device.name, format_bytes(available), format_bytes(own),
                                 profile.framework->name, format_bytes(needs[c].needed - own))};
  }
  return std::nullopt;
}

bool are_traces(const std::string& where) {
  std::error_code error;
  return where.ends_with(".et") || std::filesystem::is_directory(where, error);
}

}  // namespace

int run_verify_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream&) {
  Flags flags("verify", "Proves a plan safe, or says what is wrong with it (exit code 1).",
              "weft verify out/plan/plan.json");
  flags.positional(
      "plan",
      "the plan file, a schedule (.csv) of torch.distributed.pipelining, or Chakra traces: a folder, or .et files "
      "separated by commas");
  flags.value("memory", "GIB", "memory of a device (default: the one in the plan)");
  flags.value("receive-buffers", "N",
              "of a schedule: prove that so many static receive buffers for each stage and direction are enough");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of words");
  flags.parse(arguments);
  const auto file = flags.text("plan");
  if (!file) fail("weft verify: name the plan file, e.g. weft verify out/plan/plan.json");
  if (file->ends_with(".csv")) {
    if (flags.given("memory")) fail("--memory: a schedule says nothing of memory");
    return verify_schedule(*file, flags.integer("receive-buffers", 1, 1 << 20), flags.is_set("json"), out);
  }
  if (are_traces(*file)) {
    for (const char* other : {"memory", "receive-buffers"}) {
      if (flags.given(other)) fail("--{}: Chakra traces say nothing of buffers", other);
    }
    return verify_traces(*file, flags.is_set("json"), out);
  }
  if (flags.given("receive-buffers")) fail("--receive-buffers: is of schedules (.csv); plans have places of their own");

  SavedPlan saved = read_saved_plan(read_text_file(*file), *file);
  VerifyOptions options;
  if (const auto gib = flags.number("memory", 0.001, 1e6)) {
    options.memory_limit = Bytes{static_cast<std::int64_t>(*gib * 1024 * 1024 * 1024)};
  }
  const CheckedPlan checked = check_plan(std::move(saved.plan), options);
  std::optional<Violation> violation = checked.violation;
  if (!violation && saved.conditions) {
    violation = exceeds_memory(checked.whole->plan(), saved.conditions->profile, options.memory_limit);
  }
  print_verification(out, *file, violation, flags.is_set("json"));
  return violation ? kAnswerIsNo : kOk;
}

}  // namespace weft
