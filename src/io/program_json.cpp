#include "io/program_json.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/json/enum_names.hpp"
#include "io/json/json_reader.hpp"
#include "io/json/json_rows.hpp"

namespace weft {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kMaxRanks = 1 << 16, kMaxSlots = 1 << 24;

// A step is a row: kind, source buffer, source slot, destination buffer, destination slot, slots, then block and step
// of each instruction that it waits for. Buffers are "i", "o" and "s", as in MSCCL's files.
constexpr std::size_t kStepColumns = 6;
constexpr const char* kBuffers[] = {"i", "o", "s"};

ordered_json step_row(const Instruction& step) {
  ordered_json row{name_of(step.kind), kBuffers[static_cast<std::size_t>(step.src.buffer)],
                   step.src.slot,      kBuffers[static_cast<std::size_t>(step.dst.buffer)],
                   step.dst.slot,      step.count};
  for (const InstructionId& after : step.after) {
    row.push_back(after.block);
    row.push_back(after.step);
  }
  return row;
}

class ProgramReader {
 public:
  ProgramReader() : kinds_(names_up_to(InstructionKind::nop)) {}

  Program read(const JsonObject& object) const {
    object.allow_only(std::vector<std::string>{"origin", "name", "collective", "ranks", "helpers", "root", "pieces",
                                               "in_place", "programs"});
    Program program;
    program.name = object.string("name");
    program.spec.kind = static_cast<Collective>(object.one_of("collective", names_up_to(Collective::barrier)));
    program.spec.ranks = object.integer("ranks", 1, kMaxRanks);
    const std::int64_t helpers = object.integer_or("helpers", 0, 0, kMaxRanks);
    program.spec.root = object.integer_or("root", 0, 0, program.spec.ranks - 1);
    program.spec.pieces = object.integer("pieces", 1, kMaxSlots);
    program.in_place = object.boolean_or("in_place", false);
    validate(program.spec, object.where());
    const json& list = object.array("programs");
    for (std::size_t r = 0; r < list.size(); ++r) {
      program.ranks.push_back(read_rank(JsonObject(list[r], fmt::format("{}: programs[{}]", object.where(), r))));
    }
    if (std::ssize(program.ranks) != program.spec.ranks + helpers) {
      object.reject("programs",
                    fmt::format("an array of {} programs, one for every rank", program.spec.ranks + helpers));
    }
    return program;
  }

 private:
  RankProgram read_rank(const JsonObject& object) const {
    object.allow_only(std::vector<std::string>{"scratch", "blocks"});
    RankProgram rank;
    rank.scratch_slots = object.integer_or("scratch", 0, 0, kMaxSlots);
    const json& blocks = object.array("blocks");
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      rank.blocks.push_back(read_block(JsonObject(blocks[b], fmt::format("{}: blocks[{}]", object.where(), b))));
    }
    return rank;
  }

  ThreadBlock read_block(const JsonObject& object) const {
    object.allow_only(std::vector<std::string>{"to", "from", "channel", "steps"});
    ThreadBlock block;
    block.send_to = object.integer_or("to", -1, -1, kMaxRanks);
    block.receive_from = object.integer_or("from", -1, -1, kMaxRanks);
    block.channel = object.integer_or("channel", 0, 0, kMaxRanks);
    const json& steps = object.array("steps");
    for (std::size_t s = 0; s < steps.size(); ++s) {
      block.steps.push_back(read_step(steps[s], fmt::format("{}: steps[{}]", object.where(), s)));
    }
    return block;
  }

  Instruction read_step(const json& row, const std::string& place) const {
    if (!row.is_array() || row.size() < kStepColumns || row.size() % 2 != 0) {
      fail("{}: this is not [kind, buffer, slot, buffer, slot, slots, and block and step of what it waits for]", place);
    }
    Instruction step;
    step.kind = static_cast<InstructionKind>(place_among(kinds_, row[0], "instruction", place));
    step.src = {read_buffer(row[1], place), number(row[2], 0, kMaxSlots, place)};
    step.dst = {read_buffer(row[3], place), number(row[4], 0, kMaxSlots, place)};
    step.count = number(row[5], 0, kMaxSlots, place);
    for (std::size_t i = kStepColumns; i < row.size(); i += 2) {
      step.after.push_back({static_cast<std::int32_t>(number(row[i], 0, kMaxSlots, place)),
                            static_cast<std::int32_t>(number(row[i + 1], 0, kMaxSlots, place))});
    }
    return step;
  }

  static BufferKind read_buffer(const json& value, const std::string& place) {
    return static_cast<BufferKind>(place_among({"i", "o", "s"}, value, "buffer", place));
  }

  static std::int64_t number(const json& value, std::int64_t least, std::int64_t most, const std::string& place) {
    const bool fits = value.is_number_integer() && value >= least && value <= most;
    if (!fits) fail("{}: value {} is not an integer in {}..{}", place, json_word(value), least, most);
    return value.get<std::int64_t>();
  }

  static std::string json_word(const json& value) {
    return value.is_number() ? fmt::format("{}", value.get<double>()) : fmt::format("({})", value.type_name());
  }

  std::vector<std::string> kinds_;
};

}  // namespace

ordered_json program_to_json(const Program& program) {
  ordered_json result{{"name", program.name},
                      {"collective", name_of(program.spec.kind)},
                      {"ranks", program.spec.ranks},
                      {"pieces", program.spec.pieces}};
  if (std::ssize(program.ranks) > program.spec.ranks) {
    result["helpers"] = std::ssize(program.ranks) - program.spec.ranks;
  }
  if (program.spec.root != 0) result["root"] = program.spec.root;
  if (program.in_place) result["in_place"] = true;
  result["programs"] = ordered_json::array();
  for (const RankProgram& rank : program.ranks) {
    ordered_json own;
    if (rank.scratch_slots > 0) own["scratch"] = rank.scratch_slots;
    own["blocks"] = ordered_json::array();
    for (const ThreadBlock& block : rank.blocks) {
      ordered_json line = ordered_json::object();
      if (block.send_to >= 0) line["to"] = block.send_to;
      if (block.receive_from >= 0) line["from"] = block.receive_from;
      if (block.channel != 0) line["channel"] = block.channel;
      line["steps"] = ordered_json::array();
      for (const Instruction& step : block.steps) line["steps"].push_back(step_row(step));
      own["blocks"].push_back(std::move(line));
    }
    result["programs"].push_back(std::move(own));
  }
  return result;
}

ordered_json carried_to_json(const CarriedProgram& carried) {
  ordered_json result{{"origin", carried.origin}};
  result.update(program_to_json(carried.program));
  return result;
}

CarriedProgram carried_from_json(const json& value, const std::string& where) {
  const JsonObject object(value, where);
  return {object.string("origin"), ProgramReader().read(object)};
}

Program read_program_json(const std::string& text, const std::string& file_name) {
  const json value = parse_json(text, file_name);
  return ProgramReader().read(JsonObject(value, file_name));
}

}  // namespace weft
