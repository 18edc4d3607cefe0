// Writes docs/plan-format.md, a line at a time: the lines are what makes the file readable, and no plan is
// ever in memory twice.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "io/cluster_json.hpp"
#include "io/layout_json.hpp"
#include "io/model_json.hpp"
#include "io/plan_json.hpp"
#include "io/plan_json_limits.hpp"
#include "io/program_json.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

// An array with an item per line; `item` gives the text of the i-th.
template <class Item>
void write_lines(std::ostream& out, std::size_t count, const char* indent, Item item) {
  out << '[';
  for (std::size_t i = 0; i < count; ++i) out << (i == 0 ? "\n" : ",\n") << indent << item(i);
  out << ']';
}

ordered_json value_line(const Plan& plan, std::size_t id) {
  const Value& value = plan.graph.values[id];
  const Placement& place = plan.placements[id];
  ordered_json line{{"id", id},
                    {"name", value.name},
                    {"class", value.rank_class.value},
                    {"kind", name_of(value.kind)},
                    {"dtype", name_of(value.dtype)},
                    {"shape", value.shape}};
  for (const Split& split : value.sharding.splits) {
    line["splits"].push_back({name_of(split.axis), split.dim, name_of(split.share)});
  }
  for (const Axis axis : value.sharding.partial) line["partial"].push_back(name_of(axis));
  if (!value.per_micro_batch) line["per_micro_batch"] = false;
  if (value.accumulated) line["accumulated"] = true;
  if (value.scale_block != 0) line["scale_block"] = value.scale_block;
  if (value.bytes_per_element != 0) line["bytes_per_element"] = value.bytes_per_element;
  line["offset"] = place.offset.value;
  if (place.copies != 1) line["copies"] = place.copies;
  if (place.waits) line["waits"] = true;
  if (place.frame >= 0) line["frame"] = place.frame;
  return line;
}

ordered_json communication_object(const Communication& communication, ElementType dtype,
                                  const std::vector<ProgramRef>& programs) {
  ordered_json result{{"collective", name_of(communication.collective)},
                      {"algorithm", name_of(communication.algorithm)}};
  if (communication.parts != 1) result["parts"] = communication.parts;
  if (communication.inner != 0) result["inner"] = communication.inner;
  if (communication.program) {
    result["program"] = std::ranges::find(programs, communication.program) - programs.begin();
  }
  result["group"] = name_of(communication.group);
  if (communication.scope != Scope::whole) result["scope"] = name_of(communication.scope);
  const LevelSizes& levels = communication.levels;
  if (levels != kOwnLevels) result["levels"] = {levels.inner, levels.middle};
  const WireFormat& format = communication.format;
  if (format != WireFormat{dtype}) {
    result["wire"] = {{"type", name_of(format.type)}, {"block", format.block}, {"scale", name_of(format.scale)}};
  }
  result["bytes"] = communication.bytes.value;
  if (communication.transfer >= 0) result["transfer"] = communication.transfer;
  if (!communication.sends) result["sends"] = false;
  if (communication.mover.thread_blocks > 0) result["thread_blocks"] = communication.mover.thread_blocks;
  if (communication.mover.copy_engine) result["copy_engine"] = true;
  return result;
}

// Trailing zeros are dimensions that the kind does not have.
ordered_json dims_array(const OpKey& key) {
  std::size_t count = key.dims.size();
  while (count > 0 && key.dims[count - 1] == 0) --count;
  ordered_json dims = ordered_json::array();
  for (std::size_t i = 0; i < count; ++i) dims.push_back(key.dims[i]);
  return dims;
}

ordered_json operation_line(const Plan& plan, const std::vector<ProgramRef>& programs, std::size_t id) {
  const Operation& op = plan.graph.operations[id];
  const Issue& issue = plan.issues[id];
  ordered_json line{{"id", id}, {"name", describe(op)}, {"class", op.rank_class.value}};
  if (op.chunk != 0) line["chunk"] = op.chunk;
  if (op.layer >= 0) line["layer"] = op.layer;
  line["phase"] = name_of(op.phase);
  line["role"] = name_of(op.role);
  if (op.subject != op.role) line["subject"] = name_of(op.subject);
  if (op.part != 0) line["part"] = op.part;
  if (op.turn >= 0) line["turn"] = op.turn;
  if (op.rule != Substitution::none) line["rule"] = name_of(op.rule);
  if (op.leg != 0) line["leg"] = op.leg;
  if (!op.per_micro_batch) line["per_micro_batch"] = false;
  line["kind"] = name_of(op.key.kind);
  if (op.key.phase != op.phase) line["key_phase"] = name_of(op.key.phase);
  line["dtype"] = name_of(op.key.dtype);
  if (op.key.causal_half) line["causal_half"] = true;
  if (op.key.product != ProductFormat::stored) line["product"] = name_of(op.key.product);
  line["dims"] = dims_array(op.key);
  line["reads"] = ordered_json::array();
  for (const Read& read : op.reads) line["reads"].push_back({name_of(read.operand), read.value.value, read.distance});
  line["writes"] = ordered_json::array();
  for (const Write& write : op.writes) line["writes"].push_back({name_of(write.operand), write.value.value});
  if (op.communication) line["communication"] = communication_object(*op.communication, op.key.dtype, programs);
  for (const Origin& origin : op.origins) {
    line["origins"].push_back({origin.operation.value, origin.axis, origin.begin, origin.end, origin.of});
  }
  if (issue.queue != kComputeQueue) line["queue"] = issue.queue.value;
  if (issue.blocking) line["blocking"] = true;
  if (issue.late) line["late"] = true;
  return line;
}

ordered_json block_line(const IssueBlock& block) {
  ordered_json line{{"kind", name_of(block.kind)}};
  if (block.chunk >= 0) line["chunk"] = block.chunk;
  if (block.slice >= 0) line["slice"] = block.slice;
  line["operations"] = ordered_json::array();
  for (const OpId id : block.operations) line["operations"].push_back(id.value);
  return line;
}

ordered_json frame_line(const Frame& frame) {
  ordered_json line{{"base", ordered_json::array()}};
  for (const Bytes base : frame.base) line["base"].push_back(base.value);
  return line;
}

// A slot or a wait is too short for a line of its own.
constexpr std::size_t kRowsPerLine = 16;

std::string slots_line(const std::vector<IssueSlot>& order, bool sections, std::size_t line) {
  std::string text;
  for (std::size_t i = line * kRowsPerLine; i < std::min(order.size(), (line + 1) * kRowsPerLine); ++i) {
    if (!text.empty()) text += ',';
    const IssueSlot& slot = order[i];
    text += fmt::format("[{},{}", slot.block.value, slot.micro_batch.value);
    text += sections ? fmt::format(",{},{}]", slot.begin, slot.end) : "]";
  }
  return text;
}

std::string waits_line(const std::vector<Wait>& waits, std::size_t line) {
  std::string text;
  for (std::size_t i = line * kRowsPerLine; i < std::min(waits.size(), (line + 1) * kRowsPerLine); ++i) {
    if (!text.empty()) text += ',';
    text += fmt::format("[{},{},{}]", waits[i].operation.value, waits[i].until.value, waits[i].executions);
  }
  return text;
}

std::string windows_line(const std::vector<TaskWindow>& windows, std::size_t line) {
  std::string text;
  for (std::size_t i = line * kRowsPerLine; i < std::min(windows.size(), (line + 1) * kRowsPerLine); ++i) {
    const TaskWindow& window = windows[i];
    if (!text.empty()) text += ',';
    text +=
        fmt::format("[{},{},{},{}]", window.operation.value, window.release.value, window.deadline.value, window.steps);
  }
  return text;
}

void write_class(std::ostream& out, const RankClass& rank_class, const ClassPlan& plan) {
  ordered_json head{{"name", rank_class.name},
                    {"ranks", rank_class.ranks},
                    {"representative", rank_class.representative.value},
                    {"stage", rank_class.stage},
                    {"device", rank_class.device.name},
                    {"memory_bytes", plan.memory.value}};
  ordered_json queues = ordered_json::array();
  for (const Queue& queue : plan.queues) queues.push_back({{"name", queue.name}, {"kind", name_of(queue.kind)}});
  const std::string text = json_text(head);
  out << text.substr(0, text.size() - 1) << ",\n \"queues\":" << json_text(queues) << ",\n \"blocks\":";
  write_lines(out, plan.blocks.size(), "  ", [&](std::size_t i) { return json_text(block_line(plan.blocks[i])); });
  out << ",\n \"order\":";
  const std::size_t lines = (plan.order.size() + kRowsPerLine - 1) / kRowsPerLine;
  write_lines(out, lines, "  ", [&](std::size_t i) { return slots_line(plan.order, has_sections(plan), i); });
  if (!plan.frames.empty()) {
    out << ",\n \"frames\":";
    write_lines(out, plan.frames.size(), "  ", [&](std::size_t i) { return json_text(frame_line(plan.frames[i])); });
  }
  out << '}';
}

// What could not be read back is not written.
void check_limits(const Plan& plan) {
  check_plan_limits(plan.model, plan.cluster, plan.layout);
  std::int64_t instances = 0;
  for (const Operation& op : plan.graph.operations) instances += op.per_micro_batch ? plan.graph.micro_batches : 1;
  std::int64_t waits = 0;
  for (const Wait& wait : plan.waits) {
    waits += plan.graph.op(wait.operation).per_micro_batch ? plan.graph.micro_batches : 1;
  }
  if (waits > kMaxPlanInstances) {
    fail("the plan has {} waits a step, counted once per micro-batch; a plan file is for at most {}", waits,
         kMaxPlanInstances);
  }
  if (instances > kMaxPlanInstances) {
    fail(
        "the plan has {} operations a step, counted once per micro-batch; a plan file is for at most {}; "
        "fewer micro-batches (a larger --micro-batch) would do",
        instances, kMaxPlanInstances);
  }
}

}  // namespace

std::vector<ProgramRef> carried_programs_of(const Plan& plan) {
  std::vector<ProgramRef> programs;
  for (const Operation& op : plan.graph.operations) {
    if (!op.communication || !op.communication->program) continue;
    if (std::ranges::find(programs, op.communication->program) == programs.end()) {
      programs.push_back(op.communication->program);
    }
  }
  return programs;
}

void write_plan_json(std::ostream& out, const Plan& plan, const PlanConditions* conditions) {
  check_limits(plan);
  out << "{\"weft_plan\":" << kPlanVersion << ",\n\"policy\":" << json_text(ordered_json(plan.policy))
      << ",\n\"model\":" << json_text(model_to_json(plan.model))
      << ",\n\"cluster\":" << json_text(cluster_to_json(plan.cluster))
      << ",\n\"layout\":" << json_text(layout_to_json(plan.layout))
      << ",\n\"micro_batches\":" << plan.graph.micro_batches;
  if (plan.thread_blocks > 0) out << ",\n\"thread_blocks\":" << plan.thread_blocks;
  const std::vector<ProgramRef> programs = carried_programs_of(plan);
  if (!programs.empty()) {
    out << ",\n\"programs\":";
    write_lines(out, programs.size(), "", [&](std::size_t i) { return json_text(carried_to_json(*programs[i])); });
  }
  if (conditions != nullptr) {
    out << ",\n\"conditions\":" << json_text(conditions_to_json(*conditions, plan.cluster));
  }
  out << ",\n\"classes\":[";
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    out << (c == 0 ? "\n" : ",\n");
    write_class(out, plan.graph.classes[c], plan.classes[c]);
  }
  out << "],\n\"values\":";
  write_lines(out, plan.graph.values.size(), "", [&](std::size_t i) { return json_text(value_line(plan, i)); });
  out << ",\n\"operations\":";
  write_lines(out, plan.graph.operations.size(), "",
              [&](std::size_t i) { return json_text(operation_line(plan, programs, i)); });
  if (!plan.waits.empty()) {
    out << ",\n\"waits\":";
    const std::size_t lines = (plan.waits.size() + kRowsPerLine - 1) / kRowsPerLine;
    write_lines(out, lines, "", [&](std::size_t i) { return waits_line(plan.waits, i); });
  }
  if (!plan.windows.empty()) {
    out << ",\n\"windows\":";
    const std::size_t lines = (plan.windows.size() + kRowsPerLine - 1) / kRowsPerLine;
    write_lines(out, lines, "", [&](std::size_t i) { return windows_line(plan.windows, i); });
  }
  out << "\n}\n";
  out.flush();
}

}  // namespace weft
