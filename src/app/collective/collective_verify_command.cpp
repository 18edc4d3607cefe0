// `weft collective verify`
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/collective/program_file.hpp"
#include "app/commands.hpp"
#include "app/flags.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "collective/synthesis/switch_ranks.hpp"
#include "study/collective/program_numbers.hpp"

namespace weft {
namespace {

struct Verdict {
  std::string file;
  Program program;
  std::optional<std::string> violation;
};

std::string in_words(const Verdict& verdict) {
  if (verdict.violation) return fmt::format("{}: not safe\n{}\n", verdict.file, *verdict.violation);
  const CollectiveSpec& spec = verdict.program.spec;
  const ProgramSize size = size_of(verdict.program);
  const std::int64_t helpers = switches_of(verdict.program);
  const std::string switches = helpers == 0 ? ""
                                            : fmt::format(" and {} switch{} that take{} part", helpers,
                                                          helpers == 1 ? "" : "es", helpers == 1 ? "s" : "");
  return fmt::format(
      "{}: safe: {} of {} piece{} {}on {} ranks{}, {} blocks, {} instructions: every piece where it belongs, every "
      "contribution once, nobody waits for ever\n",
      verdict.file, name_of(spec.kind), spec.pieces, spec.pieces == 1 ? "" : "s",
      verdict.program.in_place ? "in place " : "", spec.ranks, switches, size.blocks, size.instructions);
}

nlohmann::ordered_json in_json(const Verdict& verdict) {
  const CollectiveSpec& spec = verdict.program.spec;
  const ProgramSize size = size_of(verdict.program);
  nlohmann::ordered_json json;
  json["file"] = verdict.file;
  json["safe"] = !verdict.violation.has_value();
  if (verdict.violation) json["message"] = *verdict.violation;
  json["name"] = verdict.program.name;
  json["collective"] = name_of(spec.kind);
  json["in_place"] = verdict.program.in_place;
  json["ranks"] = spec.ranks;
  if (const std::int64_t helpers = switches_of(verdict.program); helpers > 0) json["switches"] = helpers;
  json["pieces"] = spec.pieces;
  json["blocks"] = size.blocks;
  json["instructions"] = size.instructions;
  return json;
}

}  // namespace

int run_collective_verify_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream&) {
  Flags flags(
      "collective verify",
      "Proves that programs in MSCCL XML or our JSON compute their collective, or says what is wrong (exit code 1).",
      "weft collective verify allreduce_ring.xml");
  flags.positionals("files", "MSCCL XML files, or JSON of weft collective synthesize --out");
  flags.toggle("json", "one JSON object instead of words");
  flags.parse(arguments);
  if (flags.texts().empty())
    fail("weft collective verify: name a file, e.g. weft collective verify allreduce_ring.xml");

  // All are read before anything is printed: a bad file is an error, not half an answer.
  std::vector<Verdict> verdicts;
  for (const std::string& file : flags.texts()) {
    Program program = read_program_file(file);
    auto violation = first_violation(program);
    verdicts.push_back({file, std::move(program), std::move(violation)});
  }
  bool all_safe = true;
  nlohmann::ordered_json json;
  for (const Verdict& verdict : verdicts) {
    all_safe = all_safe && !verdict.violation;
    if (!flags.is_set("json")) out << in_words(verdict);
    json["files"].push_back(in_json(verdict));
  }
  json["safe"] = all_safe;
  if (flags.is_set("json")) out << json_text(json, 2) << "\n";
  return all_safe ? kOk : kAnswerIsNo;
}

}  // namespace weft
