#include "plan/verify/provenance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"
#include "graph/transfer_mover.hpp"
#include "graph/transfer_program.hpp"
#include "plan/shared_queues.hpp"
#include "plan/verify/legs.hpp"

namespace weft {
namespace {

Violation violation(std::string message) {
  return {Rule::provenance, std::move(message)};
}

using ReadSet = std::set<std::tuple<Operand, std::int32_t, std::int32_t>>;

struct Footprint {
  ReadSet reads;
  std::multiset<std::pair<Operand, std::int32_t>> writes;
  std::int64_t size = 0;  // first dimension of the key: rows, parameters or bytes
  Bytes bytes;
};

// Sizes may come from files: a sum at the limit equals that of no operation.
std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

void add(Footprint& f, const Operation& op) {
  for (const Read& read : op.reads) f.reads.insert({read.operand, read.value.value, read.distance});
  for (const Write& write : op.writes) f.writes.insert({write.operand, write.value.value});
  f.size = saturating_sum(f.size, op.key.dims[0]);
  if (op.communication) f.bytes = {saturating_sum(f.bytes.value, op.communication->bytes.value)};
}

// Everything but what a rewrite may change: subject, layer, the number of a transfer across classes and the sums in
// Footprint.
bool same_nature(const Operation& a, const Operation& b) {
  OpKey ka = a.key, kb = b.key;
  ka.dims[0] = kb.dims[0] = 0;
  if (a.rank_class != b.rank_class || a.phase != b.phase || a.role != b.role || ka != kb ||
      a.per_micro_batch != b.per_micro_batch || a.turn != b.turn || a.task_name != b.task_name ||
      a.is_transfer() != b.is_transfer()) {
    return false;
  }
  if (!a.communication) return true;
  const Communication &ca = *a.communication, &cb = *b.communication;
  return ca.collective == cb.collective && ca.group == cb.group && ca.scope == cb.scope && ca.levels == cb.levels &&
         a.rule == b.rule && a.leg == b.leg && ca.sends == cb.sends && (ca.transfer >= 0) == (cb.transfer >= 0);
}

bool same_group(const ClassGroup& a, const ClassGroup& b) {
  return a.view == b.view && a.members == b.members;
}

bool same_class(const RankClass& a, const RankClass& b) {
  return a.name == b.name && a.representative == b.representative && a.ranks == b.ranks && a.stage == b.stage &&
         a.device == b.device &&
         std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end(), same_group);
}

std::optional<Violation> check_frame(const StepGraph& whole, const StepGraph& graph) {
  if (!std::equal(graph.classes.begin(), graph.classes.end(), whole.classes.begin(), whole.classes.end(), same_class)) {
    return violation("the plan's rank classes are not those of its cluster and layout");
  }
  if (graph.micro_batches != whole.micro_batches) {
    return violation(
        fmt::format("the plan has {} micro-batches, its layout {}", graph.micro_batches, whole.micro_batches));
  }
  for (const Operation& op : graph.operations) {
    if (op.rank_class.valid() && op.rank_class.index() < graph.classes.size()) continue;
    return violation(fmt::format("'{}' is of rank class {}, which is not in 0..{}", describe(op), op.rank_class.value,
                                 static_cast<std::int64_t>(graph.classes.size()) - 1));
  }
  return std::nullopt;
}

// Rows are cut into equal parts; elements as rounding has it.
bool whole_pieces_only(const Operation& op) {
  return op.per_micro_batch;
}

// A part is alone with its origin, of those that may be cut, and no smaller than an element.
std::optional<Violation> check_part(const StepGraph& whole, const Operation& op, const Operation& source,
                                    const std::string& where) {
  const Origin& part = op.origins.front();
  if (op.origins.size() > 1 || !may_be_cut(whole, source)) {
    return violation(fmt::format("{} carries out pieces {}..{} of {} of its origin, not the whole", where, part.begin,
                                 part.end, part.of));
  }
  // The own rows and those of others are read from different values.
  const bool own_and_others = part.axis == kOwnFirstAxis && part.begin == 0 && part.end > 1;
  if (part.axis < kTokenAxis || part.axis > kOwnFirstAxis || part.begin < 0 || part.begin >= part.end ||
      part.end > part.of || part.of > kMaxCuts || (!source.per_micro_batch && part.axis != kTokenAxis) ||
      own_and_others || (whole_pieces_only(source) && !may_be_cut_into(whole, source, part.of, part.axis)) ||
      part_size(whole, source, part) < 1) {
    return violation(fmt::format("{} carries out pieces {}..{} of {} of its origin, which is no part of it", where,
                                 part.begin, part.end, part.of));
  }
  return std::nullopt;
}

std::optional<Violation> check_operation(const StepGraph& whole, const StepGraph& graph, const Operation& op) {
  const std::string where = fmt::format("{}: '{}'", graph.classes[op.rank_class.index()].name, describe(op));
  if (op.origins.empty()) return violation(where + " names no operation of the model that it carries out");
  Footprint expected, actual;
  add(actual, op);
  for (const Origin& origin : op.origins) {
    if (!origin.operation.valid() || origin.operation.index() >= whole.operations.size()) {
      return violation(fmt::format("{} names origin {}, which the model does not have", where, origin.operation.value));
    }
    const Operation& source = whole.op(origin.operation);
    if (!is_whole(origin) || origin.of < 1) {
      if (auto found = check_part(whole, op, source, where)) return found;
    }
    if (!same_nature(op, source)) {
      return violation(
          fmt::format("{} claims to carry out '{}', which is another kind of operation", where, describe(source)));
    }
    add(expected, is_own_piece(origin) ? reading_own_shard(whole, source) : source);
  }
  if (is_part(op)) {
    expected.size = part_size(whole, whole.op(op.origins.front().operation), op.origins.front());
    if (op.communication) expected.bytes = {expected.size};
    const ValueId handed = handed_on(whole.op(op.origins.front().operation), op.origins.front());
    if (handed.valid()) expected.reads.insert({Operand::loads, handed.value, 0});
  }
  if (actual.reads != expected.reads) return violation(where + " does not read what its origins read");
  if (actual.writes != expected.writes) return violation(where + " does not write what its origins write");
  if (actual.size != expected.size || actual.bytes != expected.bytes) {
    return violation(fmt::format("{} has size {} and moves {} bytes, its origins {} and {}", where, actual.size,
                                 actual.bytes.value, expected.size, expected.bytes.value));
  }
  return std::nullopt;
}

// Every operation of the model is carried out once: by one operation of the plan, or by parts that follow each other
// from its first piece to its last.
std::optional<Violation> check_coverage(const StepGraph& whole, const StepGraph& graph) {
  std::vector<std::int32_t> covered(whole.operations.size(), 0);
  std::map<std::int32_t, std::vector<const Origin*>> parts;  // by operation of the model
  for (const Operation& op : graph.operations) {
    for (const Origin& origin : op.origins) {
      if (is_whole(origin)) {
        ++covered[origin.operation.index()];
      } else {
        parts[origin.operation.value].push_back(&origin);
      }
    }
  }
  const auto name = [&](std::size_t i) {
    return fmt::format("{}: '{}'", whole.classes[whole.operations[i].rank_class.index()].name,
                       describe(whole.operations[i]));
  };
  for (auto& [operation, list] : parts) {
    const std::size_t i = operation;
    std::sort(list.begin(), list.end(), [](const Origin* a, const Origin* b) { return a->begin < b->begin; });
    std::int64_t next = 0;
    for (const Origin* part : list) {
      if (part->axis != list.front()->axis) {
        return violation(fmt::format("{}: some of its parts are cut along axis {}, others along {}", name(i),
                                     list.front()->axis, part->axis));
      }
      if (part->begin != next || part->of != list.front()->of) {
        return violation(fmt::format("{}: its parts do not follow each other: pieces {}..{} of {} come after {} of {}",
                                     name(i), part->begin, part->end, part->of, next, list.front()->of));
      }
      next = part->end;
    }
    if (next != list.front()->of) {
      return violation(fmt::format("{}: its parts end with piece {} of {}", name(i), next, list.front()->of));
    }
    ++covered[i];
  }
  for (std::size_t i = 0; i < covered.size(); ++i) {
    if (covered[i] == 1) continue;
    return violation(fmt::format("{} is carried out {} times instead of once", name(i), covered[i]));
  }
  return std::nullopt;
}

// The experts of a layer are cut along one axis in each direction: a rank then holds its slots by tokens or by
// capacity.
std::optional<Violation> check_expert_axes(const StepGraph& graph) {
  std::map<std::tuple<std::int32_t, std::int32_t, Phase>, const Operation*> first;  // by class, layer, phase
  for (const Operation& op : graph.operations) {
    if (!is_part(op) || !works_on_slots(op)) continue;
    const Operation& other = *first.try_emplace({op.rank_class.value, op.layer, op.phase}, &op).first->second;
    if (other.origins.front().axis == op.origins.front().axis) continue;
    return violation(fmt::format("{}: '{}' is cut along axis {}, '{}' along axis {}; experts of a layer are cut alike",
                                 graph.classes[op.rank_class.index()].name, describe(other), other.origins.front().axis,
                                 describe(op), op.origins.front().axis));
  }
  return std::nullopt;
}

// Operations of several classes that are one transfer carry out the same transfers of the model, and go by the least of
// their numbers. Parts have numbers of their own, but for the first.
std::optional<Violation> check_transfers(const StepGraph& whole, const StepGraph& graph) {
  // Transfers of the model and the pieces of each.
  using Carried = std::set<std::tuple<std::int32_t, std::int64_t, std::int64_t, std::int64_t>>;
  struct First {
    const Operation* operation;
    Carried carries;
  };
  std::int32_t numbers = 0;  // of the model
  for (const Operation& op : whole.operations) {
    if (op.communication) numbers = std::max(numbers, op.communication->transfer + 1);
  }
  std::map<std::int32_t, First> first_of;     // by transfer
  std::map<Carried, std::int32_t> number_of;  // parts
  for (const Operation& op : graph.operations) {
    if (!op.communication || op.communication->transfer < 0) continue;
    Carried carries;
    for (const Origin& origin : op.origins) {
      const std::int32_t transfer = whole.op(origin.operation).communication->transfer;
      if (is_whole(origin)) {
        carries.insert({transfer, 0, 1, 1});
      } else {
        carries.insert({transfer, origin.begin, origin.end, origin.of});
      }
    }
    const std::string& where = graph.classes[op.rank_class.index()].name;
    const std::int32_t number = op.communication->transfer, least = std::get<0>(*carries.begin());
    const bool later_part = is_part(op) && op.origins.front().begin > 0;
    if (later_part ? number < numbers : number != least) {
      return violation(
          fmt::format("{}: '{}' is numbered as transfer {}, {} {}", where, describe(op), number,
                      later_part ? "parts behind the first have numbers from" : "the first that it carries out is",
                      later_part ? numbers : least));
    }
    if (later_part && number_of.try_emplace(carries, number).first->second != number) {
      return violation(fmt::format("{}: '{}' is numbered as transfer {}, in another class {}", where, describe(op),
                                   number, number_of.at(carries)));
    }
    const auto [it, is_first] = first_of.try_emplace(op.communication->transfer, First{&op, carries});
    if (is_first || it->second.carries == carries) continue;
    const Operation& other = *it->second.operation;
    return violation(fmt::format("'{}: {}' and '{}: {}' are one transfer, but carry out different ones of the model",
                                 graph.classes[other.rank_class.index()].name, describe(other), where, describe(op)));
  }
  return std::nullopt;
}

}  // namespace

namespace {

// `whole` is the graph of the model, with its transfers in the legs that the plan has.
std::optional<Violation> check_origins(const StepGraph& whole, const StepGraph& graph) {
  if (graph.values != whole.values) {
    return violation("the plan's values are not those of its model and layout, and of its transfers' legs");
  }
  for (const Operation& op : graph.operations) {
    if (auto found = check_operation(whole, graph, op)) return found;
  }
  if (auto found = check_coverage(whole, graph)) return found;
  if (auto found = check_expert_axes(graph)) return found;
  return check_transfers(whole, graph);
}

}  // namespace

std::optional<Violation> check_provenance(const Plan& plan, const StepGraph& whole) {
  if (auto found = check_frame(whole, plan.graph)) return found;
  if (!has_legs(plan.graph)) return check_origins(whole, plan.graph);
  const LegOrigins found = find_leg_origins(whole, plan.graph);
  if (found.violation) return violation(*found.violation);
  return check_origins(found.whole, found.graph);
}

std::optional<Violation> check_algorithms(const Plan& plan) {
  std::map<std::int32_t, const Operation*> first;  // by transfer
  std::optional<Cluster> cluster;                  // where a mover asks for it
  for (const Operation& op : plan.graph.operations) {
    if (!op.communication) continue;
    const Communication& c = *op.communication;
    const RankClass& rank_class = plan.graph.classes[op.rank_class.index()];
    if (const std::string fault = program_fault(c, rank_class.group(c.group).scoped(c.scope, c.levels).view.size);
        !fault.empty()) {
      return Violation{Rule::collective_order, fmt::format("{}: '{}': {}", rank_class.name, describe(op), fault)};
    }
    if (!c.mover.is_library()) {
      if (!cluster) cluster.emplace(plan.cluster);
      if (const std::string fault = mover_fault(*cluster, rank_class, c); !fault.empty()) {
        return Violation{Rule::collective_order, fmt::format("{}: '{}': {}", rank_class.name, describe(op), fault)};
      }
    }
    if (c.transfer < 0) continue;
    const Operation& other = *first.try_emplace(c.transfer, &op).first->second;
    const Communication& agreed = *other.communication;
    if (agreed.algorithm == c.algorithm && agreed.parts == c.parts && agreed.inner == c.inner &&
        agreed.program == c.program && agreed.mover == c.mover) {
      continue;
    }
    const auto name = [&](const Operation& o) {
      const Mover& mover = o.communication->mover;
      return fmt::format("{} carries out '{}' as a {}{}", plan.graph.classes[o.rank_class.index()].name, describe(o),
                         program_in_words(*o.communication),
                         mover.is_library() ? "" : fmt::format(" by {}", in_words(mover)));
    };
    return Violation{Rule::collective_order,
                     fmt::format("members of one transfer disagree: {}, {}", name(other), name(op))};
  }
  return std::nullopt;
}

std::optional<Violation> check_queues(const Plan& plan) {
  const SharedQueues queues(plan);
  if (!queues.conflict()) return std::nullopt;
  const auto name = [&](OpId id) {
    const Operation& op = plan.graph.op(id);
    return fmt::format("'{}' to queue '{}'", describe(op),
                       plan.classes[op.rank_class].queues[plan.issues[id].queue].name);
  };
  const OpId first = queues.conflict()->first;
  return Violation{Rule::collective_order,
                   fmt::format("queues that do not match: {} issues {} and {}, but other members of these transfers "
                               "have both on one queue; what one member issues to one queue, all issue to one queue",
                               plan.graph.classes[plan.graph.op(first).rank_class.index()].name, name(first),
                               name(queues.conflict()->second))};
}

std::optional<Violation> check_collective_order(const WholePlan& whole) {
  const Plan& plan = whole.plan();
  const Unfolded& unfolded = whole.unfolded();
  // For every pair of classes, the transfers they share on one queue of the one, as each issues them.
  struct Issued {
    JointId joint;
    InstanceId instance;
  };
  std::map<std::pair<ClassId, QueueId>, std::vector<Issued>> by_queue;
  for (const InstanceId i : unfolded.instances().ids()) {
    const Instance& instance = unfolded.instances()[i];
    if (instance.joint.valid()) by_queue[{instance.rank_class, instance.queue}].push_back({instance.joint, i});
  }
  for (const auto& [key, issued] : by_queue) {
    // Follow this queue; on every other member's queue the shared transfers must come in the same order.
    std::map<std::pair<ClassId, QueueId>, std::pair<std::int32_t, InstanceId>> last;  // position in the queue, instance
    for (const Issued& here : issued) {
      for (const InstanceId member : unfolded.members(here.joint)) {
        const Instance& other = unfolded.instances()[member];
        if (other.rank_class == key.first) continue;
        const auto [it, first] =
            last.try_emplace({other.rank_class, other.queue}, std::pair{other.queue_position, here.instance});
        if (first) continue;
        if (other.queue_position < it->second.first) {
          const auto name = [&](InstanceId i) { return describe(plan, unfolded.instances()[i]); };
          return Violation{Rule::collective_order,
                           fmt::format("order of transfers: {} issues '{}' before '{}', {} the other way round",
                                       plan.graph.classes[key.first].name, name(it->second.second), name(here.instance),
                                       plan.graph.classes[other.rank_class].name)};
        }
        it->second = {other.queue_position, here.instance};
      }
    }
  }
  return std::nullopt;
}

}  // namespace weft
