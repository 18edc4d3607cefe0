#include "plan/verify/provenance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/error.hpp"
#include "graph/transfer_program.hpp"

namespace weft {
namespace {

Violation violation(std::string message) {
  return {Rule::provenance, std::move(message)};
}

using ReadSet = std::set<std::pair<std::int32_t, std::int32_t>>;

struct Footprint {
  ReadSet reads;
  std::multiset<std::int32_t> writes;
  std::int64_t size = 0;  // first dimension of the key: rows, parameters or bytes
  Bytes bytes;
};

// Of sizes that come from files: a sum at the limit equals that of no operation.
std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

void add(Footprint& f, const Operation& op) {
  for (const Read& read : op.reads) f.reads.insert({read.value.value, read.distance});
  for (const ValueId value : op.writes) f.writes.insert(value.value);
  f.size = saturating_sum(f.size, op.key.dims[0]);
  if (op.communication) f.bytes = {saturating_sum(f.bytes.value, op.communication->bytes.value)};
}

// Everything but what a rewrite may change: subject, layer, the number of a transfer across classes and the sums in
// Footprint.
bool same_nature(const Operation& a, const Operation& b) {
  OpKey ka = a.key, kb = b.key;
  ka.dims[0] = kb.dims[0] = 0;
  if (a.rank_class != b.rank_class || a.phase != b.phase || a.role != b.role || ka != kb ||
      a.per_micro_batch != b.per_micro_batch || a.is_transfer() != b.is_transfer()) {
    return false;
  }
  if (!a.communication) return true;
  const Communication &ca = *a.communication, &cb = *b.communication;
  return ca.collective == cb.collective && ca.group == cb.group && ca.sends == cb.sends &&
         (ca.transfer >= 0) == (cb.transfer >= 0);
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
  if (graph.values != whole.values) return violation("the plan's values are not those of its model and layout");
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

std::optional<Violation> check_operation(const StepGraph& whole, const StepGraph& graph, const Operation& op) {
  const std::string where = fmt::format("{}: '{}'", graph.classes[op.rank_class.index()].name, describe(op));
  if (op.origins.empty()) return violation(where + " names no operation of the model that it carries out");
  Footprint expected, actual;
  add(actual, op);
  for (const Origin& origin : op.origins) {
    if (!origin.operation.valid() || origin.operation.index() >= whole.operations.size()) {
      return violation(fmt::format("{} names origin {}, which the model does not have", where, origin.operation.value));
    }
    if (origin.begin != 0 || origin.end != origin.of || origin.of < 1) {
      return violation(fmt::format("{} carries out pieces {}..{} of {} of its origin, not the whole", where,
                                   origin.begin, origin.end, origin.of));
    }
    const Operation& source = whole.op(origin.operation);
    if (!same_nature(op, source)) {
      return violation(
          fmt::format("{} claims to carry out '{}', which is another kind of operation", where, describe(source)));
    }
    add(expected, source);
  }
  if (actual.reads != expected.reads) return violation(where + " does not read what its origins read");
  if (actual.writes != expected.writes) return violation(where + " does not write what its origins write");
  if (actual.size != expected.size || actual.bytes != expected.bytes) {
    return violation(fmt::format("{} has size {} and moves {} bytes, its origins {} and {}", where, actual.size,
                                 actual.bytes.value, expected.size, expected.bytes.value));
  }
  return std::nullopt;
}

// Operations of several classes that are one transfer carry out the same transfers of the model, and go by the least of
// their numbers.
std::optional<Violation> check_transfers(const StepGraph& whole, const StepGraph& graph) {
  struct First {
    const Operation* operation;
    std::set<std::int32_t> carries;
  };
  std::map<std::int32_t, First> first_of;  // by transfer
  for (const Operation& op : graph.operations) {
    if (!op.communication || op.communication->transfer < 0) continue;
    std::set<std::int32_t> carries;
    for (const Origin& origin : op.origins) carries.insert(whole.op(origin.operation).communication->transfer);
    const std::string& where = graph.classes[op.rank_class.index()].name;
    if (op.communication->transfer != *carries.begin()) {
      return violation(fmt::format("{}: '{}' is numbered as transfer {}, the first that it carries out is {}", where,
                                   describe(op), op.communication->transfer, *carries.begin()));
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

std::optional<Violation> check_provenance(const Plan& plan, const StepGraph& whole) {
  if (auto found = check_frame(whole, plan.graph)) return found;
  std::vector<std::int32_t> covered(whole.operations.size(), 0);
  for (const Operation& op : plan.graph.operations) {
    if (auto found = check_operation(whole, plan.graph, op)) return found;
    for (const Origin& origin : op.origins) ++covered[origin.operation.index()];
  }
  for (std::size_t i = 0; i < covered.size(); ++i) {
    if (covered[i] == 1) continue;
    return violation(fmt::format("{}: '{}' is carried out {} times instead of once",
                                 whole.classes[whole.operations[i].rank_class.index()].name,
                                 describe(whole.operations[i]), covered[i]));
  }
  return check_transfers(whole, plan.graph);
}

std::optional<Violation> check_algorithms(const Plan& plan) {
  std::map<std::int32_t, const Operation*> first;  // by transfer
  for (const Operation& op : plan.graph.operations) {
    if (!op.communication) continue;
    const Communication& c = *op.communication;
    const RankClass& rank_class = plan.graph.classes[op.rank_class.index()];
    if (const std::string fault = program_fault(c, rank_class.group(c.group).view.size); !fault.empty()) {
      return Violation{Rule::collective_order, fmt::format("{}: '{}': {}", rank_class.name, describe(op), fault)};
    }
    if (c.transfer < 0) continue;
    const Operation& other = *first.try_emplace(c.transfer, &op).first->second;
    const Communication& agreed = *other.communication;
    if (agreed.algorithm == c.algorithm && agreed.parts == c.parts && agreed.inner == c.inner) continue;
    const auto name = [&](const Operation& o) {
      return fmt::format("{} carries out '{}' as a {}", plan.graph.classes[o.rank_class.index()].name, describe(o),
                         program_in_words(*o.communication));
    };
    return Violation{Rule::collective_order,
                     fmt::format("members of one transfer disagree: {}, {}", name(other), name(op))};
  }
  return std::nullopt;
}

std::optional<Violation> check_collective_order(const Plan& plan, const Unfolded& unfolded) {
  // For every pair of classes, the transfers they share on one queue of the one, as each issues them.
  struct Issued {
    std::int32_t joint, instance;
  };
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Issued>> by_queue;  // (class, queue)
  for (std::size_t i = 0; i < unfolded.instances().size(); ++i) {
    const Instance& instance = unfolded.instances()[i];
    if (instance.joint < 0) continue;
    by_queue[{instance.rank_class, instance.queue}].push_back({instance.joint, static_cast<std::int32_t>(i)});
  }
  for (const auto& [key, issued] : by_queue) {
    // Follow this queue; on every other member's queue the shared transfers must come in the same order.
    std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::int32_t, std::int32_t>> last;  // position, instance
    for (const Issued& here : issued) {
      for (const std::int32_t member : unfolded.members(static_cast<std::size_t>(here.joint))) {
        const Instance& other = unfolded.instances()[static_cast<std::size_t>(member)];
        if (other.rank_class == key.first) continue;
        const auto [it, first] =
            last.try_emplace({other.rank_class, other.queue}, std::pair{other.queue_position, here.instance});
        if (first) continue;
        if (other.queue_position < it->second.first) {
          const auto name = [&](std::int32_t i) {
            return describe(plan, unfolded.instances()[static_cast<std::size_t>(i)]);
          };
          return Violation{
              Rule::collective_order,
              fmt::format("order of transfers: {} issues '{}' before '{}', {} the other way round",
                          plan.graph.classes[static_cast<std::size_t>(key.first)].name, name(it->second.second),
                          name(here.instance), plan.graph.classes[static_cast<std::size_t>(other.rank_class)].name)};
        }
        it->second = {other.queue_position, here.instance};
      }
    }
  }
  return std::nullopt;
}

}  // namespace weft
