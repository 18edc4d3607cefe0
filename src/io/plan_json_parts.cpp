#include "io/plan_json_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "cluster/validate.hpp"
#include "graph/transfer_program.hpp"
#include "io/json/enum_names.hpp"
#include "io/json/json_rows.hpp"
#include "io/plan_json_limits.hpp"

namespace weft {
namespace {

// What values and transfers of a plan consist of. Integers are of the runtime's own messages.
constexpr ElementType kPlanTypes[] = {ElementType::fp32, ElementType::bf16, ElementType::fp16, ElementType::fp8,
                                      ElementType::u8};

using nlohmann::json;

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxShape = 8;

std::int32_t small_integer_or(const JsonObject& object, const std::string& key, std::int32_t fallback, std::int64_t min,
                              std::int64_t max) {
  return static_cast<std::int32_t>(object.integer_or(key, fallback, min, max));
}

// "splits": [[axis name, dimension, how it is shared], ...], "partial": [axis name, ...].
Sharding read_sharding(const JsonObject& object, std::size_t dims, const std::vector<std::string>& axes,
                       const std::vector<std::string>& shares) {
  Sharding sharding;
  if (object.has("splits")) {
    for (const json& item : object.array("splits")) {
      const std::string place = fmt::format("{}: key 'splits'[{}]", object.where(), sharding.splits.size());
      std::int64_t dim = 0;
      const JsonColumn column{"dimension", 0, static_cast<std::int64_t>(dims) - 1};
      if (!item.is_array() || item.size() != 3 || !fits_column(item[1], column, dim)) {
        fail("{}: this is not [the name of an axis, a dimension of the shape, how it is shared]", place);
      }
      const auto axis = Axis{static_cast<std::uint8_t>(place_among(axes, item[0], "axis", place))};
      const auto share = static_cast<Share>(place_among(shares, item[2], "share", place));
      sharding.splits.push_back({static_cast<std::int32_t>(dim), axis, share});
    }
  }
  if (object.has("partial")) {
    for (const json& name : object.array("partial")) {
      const std::string place = fmt::format("{}: key 'partial'[{}]", object.where(), sharding.partial.size());
      sharding.partial.push_back({static_cast<std::uint8_t>(place_among(axes, name, "axis", place))});
    }
  }
  return sharding;
}

}  // namespace

void check_line_id(const JsonObject& object, std::size_t index) {
  if (object.integer_or("id", static_cast<std::int64_t>(index), 0, kMaxInt32) == static_cast<std::int64_t>(index))
    return;
  object.reject("id", fmt::format("{}, its place in the list (which starts at 0)", index));
}

ValueReader::ValueReader(const PlanCounts& counts)
    : counts_(counts),
      keys_{"id",
            "name",
            "class",
            "kind",
            "dtype",
            "shape",
            "splits",
            "partial",
            "per_micro_batch",
            "accumulated",
            "bytes_per_element",
            "scale_block",
            "offset",
            "copies",
            "waits",
            "frame"},
      kinds_(names_up_to(ValueKind::scalar)),
      dtypes_(names_of(kPlanTypes)),
      axes_(kAxisNames.begin(), kAxisNames.end()),
      shares_(names_up_to(Share::mirrored)) {}

Value ValueReader::value(const JsonObject& object) const {
  object.allow_only(keys_);
  Value value;
  value.name = object.string("name");
  value.rank_class = {static_cast<std::int32_t>(object.integer("class", 0, counts_.classes - 1))};
  value.kind = static_cast<ValueKind>(object.one_of("kind", kinds_));
  value.dtype = kPlanTypes[object.one_of("dtype", dtypes_)];
  if (object.array("shape").size() > kMaxShape) {
    object.reject("shape", fmt::format("an array of at most {} dimensions", kMaxShape));
  }
  value.shape = object.integers("shape", 0, kMaxPlanBytes);
  value.sharding = read_sharding(object, value.shape.size(), axes_, shares_);
  value.per_micro_batch = object.boolean_or("per_micro_batch", true);
  value.accumulated = object.boolean_or("accumulated", false);
  value.scale_block = small_integer_or(object, "scale_block", 0, 0, kMaxInt32);
  value.bytes_per_element = object.number_or("bytes_per_element", 0, 0, 1024);
  return value;
}

Placement ValueReader::placement(const JsonObject& object, const Value& value) const {
  Placement place;
  place.offset = {object.integer("offset", 0, kMaxPlanBytes)};
  place.copies = small_integer_or(object, "copies", 1, 1, counts_.micro_batches);
  place.waits = object.boolean_or("waits", false);
  place.frame = small_integer_or(object, "frame", -1, -1, kMaxPlanFrames - 1);
  const std::string what = object.where() + ": key 'shape'";
  Value sized = value;
  sized.name = what;  // what Value::bytes() names where it overflows
  const std::int64_t bytes = sized.bytes().value;
  if (bytes > kMaxPlanBytes || checked_product({aligned(Bytes{bytes}).value, place.copies}, what) > kMaxPlanBytes) {
    fail("{}: {} bytes in {} copies are more than {}", what, bytes, place.copies, kMaxPlanBytes);
  }
  return place;
}

OperationReader::OperationReader(const PlanCounts& counts, std::vector<ProgramRef> programs)
    : counts_(counts),
      programs_(std::move(programs)),
      keys_{"id",    "name",   "class",         "chunk",           "layer", "phase",     "role",  "subject",     "part",
            "turn",  "rule",   "leg",           "per_micro_batch", "kind",  "key_phase", "dtype", "causal_half", "dims",
            "reads", "writes", "communication", "origins",         "queue", "blocking",  "late",  "product"},
      communication_keys_{"collective", "algorithm", "parts",    "inner", "group",   "scope",         "levels",
                          "wire",       "bytes",     "transfer", "sends", "program", "thread_blocks", "copy_engine"},
      phases_(names_up_to(Phase::optimizer)),
      roles_(names_up_to(Role::task)),
      operands_(names_up_to(Operand::payload)),
      kinds_(names_up_to(OpKind::transfer)),
      dtypes_(names_of(kPlanTypes)),
      products_(names_up_to(ProductFormat::fp4)),
      collectives_(names_up_to(Collective::barrier)),
      algorithms_(names_up_to(Algorithm::carried)),
      groups_(names_of(group_kinds())),
      scopes_(names_up_to(Scope::top)),
      rules_(names_up_to(kLastSubstitution)) {}

Operation OperationReader::operation(const JsonObject& object) const {
  object.allow_only(keys_);
  Operation op;
  read_identity(object, op);
  op.key = read_key(object, op.phase);
  if (object.has("communication")) op.communication = read_communication(object.object("communication"), op.key.dtype);
  if (op.is_transfer() != (op.key.kind == OpKind::transfer)) {
    fail("{}: kind '{}' {} a key 'communication'", object.where(), name_of(op.key.kind),
         op.is_transfer() ? "does not have" : "needs");
  }
  read_stage(object, op);
  read_dependencies(object, op);
  op.origins = read_origins(object);
  return op;
}

void OperationReader::read_identity(const JsonObject& object, Operation& op) const {
  const std::string name = object.string_or("name", "");  // for people; of a user's task it is the task's own
  op.rank_class = {static_cast<std::int32_t>(object.integer("class", 0, counts_.classes - 1))};
  op.chunk = small_integer_or(object, "chunk", 0, 0, counts_.chunks - 1);
  op.layer = small_integer_or(object, "layer", -1, -1, counts_.layers - 1);
  op.phase = static_cast<Phase>(object.one_of("phase", phases_));
  op.role = static_cast<Role>(object.one_of("role", roles_));
  op.subject = object.has("subject") ? static_cast<Role>(object.one_of("subject", roles_)) : op.role;
  op.part = small_integer_or(object, "part", 0, 0, kMaxInt32);
  op.turn = small_integer_or(object, "turn", -1, 0, kMaxInt32);
  op.per_micro_batch = object.boolean_or("per_micro_batch", true);
  if (op.role == Role::task) op.task_name = name;
}

void OperationReader::read_stage(const JsonObject& object, Operation& op) const {
  if (!object.has("rule")) {
    if (object.has("leg")) fail("{}: key 'leg' needs a key 'rule', which says what it is a leg of", object.where());
    return;
  }
  op.rule = static_cast<Substitution>(object.one_of("rule", rules_));
  if (!op.is_transfer() || op.rule == Substitution::none) {
    fail("{}: key 'rule': value '{}': only a transfer has a rule, and one that is not in legs has no such key",
         object.where(), name_of(op.rule));
  }
  op.leg = small_integer_or(object, "leg", 0, 0, std::ssize(rule_of(op.rule).legs) - 1);
}

OpKey OperationReader::read_key(const JsonObject& object, Phase phase) const {
  OpKey key;
  key.kind = static_cast<OpKind>(object.one_of("kind", kinds_));
  key.phase = object.has("key_phase") ? static_cast<Phase>(object.one_of("key_phase", phases_)) : phase;
  key.dtype = kPlanTypes[object.one_of("dtype", dtypes_)];
  key.causal_half = object.boolean_or("causal_half", false);
  if (object.has("product")) key.product = static_cast<ProductFormat>(object.one_of("product", products_));
  if (object.array("dims").size() > key.dims.size()) {
    object.reject("dims", fmt::format("an array of at most {} integers", key.dims.size()));
  }
  const std::vector<std::int64_t> dims = object.integers("dims", 0, kMaxPlanBytes);
  std::copy(dims.begin(), dims.end(), key.dims.begin());
  return key;
}

Communication OperationReader::read_communication(const JsonObject& object, ElementType dtype) const {
  object.allow_only(communication_keys_);
  Communication communication;
  communication.collective = static_cast<Collective>(object.one_of("collective", collectives_));
  communication.algorithm = static_cast<Algorithm>(object.one_of("algorithm", algorithms_));
  communication.parts = small_integer_or(object, "parts", 1, 1, kMaxTransferParts);
  communication.inner = small_integer_or(object, "inner", 0, 0, kMaxDevices);
  if (object.has("program")) {
    communication.program =
        programs_.empty() ? ProgramRef() : programs_[object.integer("program", 0, std::ssize(programs_) - 1)];
    if (programs_.empty()) object.reject("program", "left out, because the plan carries no programs");
  }
  if (const std::string fault = program_fault(communication); !fault.empty()) fail("{}: {}", object.where(), fault);
  communication.group = group_kinds()[object.one_of("group", groups_)];
  if (object.has("scope")) communication.scope = static_cast<Scope>(object.one_of("scope", scopes_));
  if (object.has("levels")) {
    const std::vector<std::int64_t> sizes = object.integers("levels", 1, kMaxDevices);
    if (sizes.size() != 2) object.reject("levels", "two numbers: members of an inner group and of a middle one");
    communication.levels = {sizes[0], sizes[1]};
  }
  communication.format = object.has("wire") ? read_wire(object.object("wire")) : WireFormat{dtype};
  communication.bytes = {object.integer("bytes", 0, kMaxPlanBytes)};
  communication.transfer = small_integer_or(object, "transfer", -1, -1, kMaxInt32);
  communication.sends = object.boolean_or("sends", true);
  communication.mover = read_mover(object);
  return communication;
}

Mover OperationReader::read_mover(const JsonObject& object) {
  Mover mover;
  mover.thread_blocks = small_integer_or(object, "thread_blocks", 0, 1, kMaxThreadBlocks);
  mover.copy_engine = object.boolean_or("copy_engine", false);
  return mover;
}

WireFormat OperationReader::read_wire(const JsonObject& object) const {
  object.allow_only(std::array<std::string, 3>{"type", "block", "scale"});
  return {kPlanTypes[object.one_of("type", dtypes_)], small_integer_or(object, "block", 0, 0, kMaxInt32),
          kPlanTypes[object.one_of("scale", dtypes_)]};
}

void OperationReader::read_dependencies(const JsonObject& object, Operation& op) const {
  const JsonColumn value{"value", 0, counts_.values - 1};
  for (const auto& [operand, row] : named_rows<2>(object, "reads", "operand", operands_, {value, {"distance", 0, 1}})) {
    op.reads.push_back(
        {static_cast<Operand>(operand), {static_cast<std::int32_t>(row[0])}, static_cast<std::int32_t>(row[1])});
  }
  for (const auto& [operand, row] : named_rows<1>(object, "writes", "operand", operands_, {value})) {
    op.writes.push_back({static_cast<Operand>(operand), {static_cast<std::int32_t>(row[0])}});
  }
}

std::vector<Origin> OperationReader::read_origins(const JsonObject& object) const {
  std::vector<Origin> origins;
  const auto rows = json_rows<5>(object, "origins",
                                 {{{"operation of the model's graph", 0, counts_.origins - 1},
                                   {"axis", 0, static_cast<std::int64_t>(OpKey{}.dims.size()) - 1},
                                   {"begin", 0, kMaxInt32 - 1},
                                   {"end", 1, kMaxInt32},
                                   {"of", 1, kMaxInt32}}});
  for (const auto& [id, axis, begin, end, of] : rows) {
    if (begin >= end || end > of) {
      fail("{}: key 'origins'[{}]: begin {}, end {} of {} is no range within 0..{}", object.where(), origins.size(),
           begin, end, of, of);
    }
    origins.push_back({{static_cast<std::int32_t>(id)}, static_cast<std::int32_t>(axis), begin, end, of});
  }
  return origins;
}

Issue OperationReader::issue(const JsonObject& object, std::size_t queues) const {
  return {.queue = {small_integer_or(object, "queue", 0, 0, static_cast<std::int64_t>(queues) - 1)},
          .blocking = object.boolean_or("blocking", false),
          .late = object.boolean_or("late", false)};
}

}  // namespace weft
