#include "graph/substitute.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

Carried carried_by_one(const Operation& op) {
  return {op.reads.front().value, op.writes.front().value};
}

const ClassGroup& group_of(const StepGraph& graph, const Operation& op) {
  return graph.classes[op.rank_class.index()].group(op.communication->group);
}

// The elements of what lies behind a leg that is not the last one.
std::int64_t elements_behind(const StepGraph& graph, const Operation& op, Substitution rule, std::int64_t leg) {
  const std::int64_t read = graph.value(carried_by_one(op).read).elements();
  const std::int64_t written = graph.value(carried_by_one(op).written).elements();
  const ClassGroup& group = group_of(graph, op);
  const auto divided = [&](std::int64_t n) { return (read + n - 1) / n; };
  switch (rule) {
    case Substitution::all_reduce_in_halves:
      return divided(group.view.size);
    case Substitution::all_reduce_in_levels:
      return divided(group.scoped(Scope::inner).view.size);
    case Substitution::all_to_all_in_levels:
      return read;
    case Substitution::all_reduce_in_three_levels: {
      const LevelSizes levels = group.level_sizes();
      const bool is_above_middle = leg == 1 || leg == 2;
      return divided(levels.inner * levels.middle) * (is_above_middle ? 1 : levels.middle);
    }
    case Substitution::reduce_scatter_in_three_levels:
      return std::min(read, written) * group.scoped(leg == 0 ? Scope::outer : Scope::top).view.size;
    case Substitution::all_gather_in_three_levels:
      return std::min(read, written) * group.scoped(leg == 0 ? Scope::top : Scope::outer).view.size;
    default:
      return std::min(read, written) * group.scoped(Scope::outer).view.size;
  }
}

// Of all that lies between the legs.
std::int64_t most_elements_between(const StepGraph& graph, const Operation& op, Substitution rule) {
  std::int64_t most = 0;
  for (std::int64_t leg = 0; leg + 1 < std::ssize(rule_of(rule).legs); ++leg) {
    most = std::max(most, elements_behind(graph, op, rule, leg));
  }
  return most;
}

// What the buffer of a leg has, as Communication counts it.
std::int64_t elements_of_leg(const ClassGroup& group, const RuleLeg& leg, const Value& in, const Value& out) {
  const std::int64_t members = group.scoped(leg.scope).view.size;
  switch (leg.collective) {
    case Collective::reduce_scatter:
      return out.elements() * members;
    case Collective::all_gather:
      return in.elements() * members;
    default:
      return in.elements();
  }
}

bool is_parameter_traffic(const Operation& op) {
  if (op.role != Role::grad_reduce && op.role != Role::param_gather) return false;
  const GroupKind group = op.communication->group;
  return group == GroupKind::dp || group == GroupKind::shard || group == GroupKind::edp;
}

// Forwarded rows cross to a node once as they are. A part by rows of a sum needs equal slices of whole elements.
bool allows_layer_rule(const StepGraph& graph, const Operation& op, Substitution rule) {
  if (std::find(std::begin(kLayerRules), std::end(kLayerRules), rule) == std::end(kLayerRules)) return false;
  if (op.communication->group == GroupKind::ep && graph.tokens.routed.forwarded) return false;
  const ClassGroup& group = group_of(graph, op);
  if (group.levels.empty() || rule != Substitution::all_reduce_in_levels) return true;
  return graph.value(carried_by_one(op).read).shape.back() % group.scoped(Scope::inner).view.size == 0;
}

}  // namespace

bool is_layer_traffic(const Operation& op) {
  if (!op.communication || !op.per_micro_batch || op.layer < 0 || !carries_one_value(op)) return false;
  const GroupKind group = op.communication->group;
  switch (op.role) {
    case Role::attention_gather:
    case Role::attention_reduce:
    case Role::ffn_gather:
    case Role::ffn_reduce:
      return group == GroupKind::tp;
    case Role::kv_gather:
    case Role::kv_reduce:
      return group == GroupKind::cp;
    case Role::expert_dispatch:
    case Role::expert_combine:
      return group == GroupKind::ep && op.communication->collective == Collective::all_to_all;
    default:
      return false;
  }
}

bool may_be_substituted(const StepGraph& graph, const Operation& op, Substitution rule) {
  if (std::find(std::begin(kGraphRules), std::end(kGraphRules), rule) == std::end(kGraphRules)) return false;
  if (!op.communication || op.communication->collective != rule_of(rule).collective) return false;
  if (is_layer_traffic(op)) {
    if (!allows_layer_rule(graph, op, rule)) return false;
  } else if (!is_parameter_traffic(op)) {
    return false;
  }
  if (!carries_one_value(op) || op.communication->format.type == ElementType::u8) return false;
  if (has_levels(rule_of(rule)) && group_of(graph, op).levels.empty()) return false;
  if (has_three_levels(rule_of(rule)) && !group_of(graph, op).has_scope(Scope::middle)) return false;
  const std::int64_t whole =
      std::max(graph.value(carried_by_one(op).read).elements(), graph.value(carried_by_one(op).written).elements());
  return whole > 0 && most_elements_between(graph, op, rule) <= whole;
}

std::vector<Substitution> first_possible(const StepGraph& graph, const std::vector<Substitution>& wanted) {
  std::vector<Substitution> rules(graph.operations.size(), Substitution::none);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const auto found = std::find_if(wanted.begin(), wanted.end(), [&](Substitution rule) {
      return may_be_substituted(graph, graph.operations[i], rule);
    });
    if (found != wanted.end()) rules[i] = *found;
  }
  return rules;
}

std::vector<Substitution> first_possible_of_parameters(const StepGraph& graph,
                                                       const std::vector<Substitution>& wanted) {
  std::vector<Substitution> rules = first_possible(graph, wanted);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (is_layer_traffic(graph.operations[i])) rules[i] = Substitution::none;
  }
  return rules;
}

std::vector<Substitution> layer_traffic_in_levels(const StepGraph& graph) {
  std::vector<Substitution> rules = first_possible(graph, {std::begin(kLayerRules), std::end(kLayerRules)});
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (!is_layer_traffic(graph.operations[i])) rules[i] = Substitution::none;
  }
  return rules;
}

SubstitutedGraph::SubstitutedGraph(const StepGraph& whole, const std::vector<Substitution>& rules) : graph_(whole) {
  WEFT_CHECK(rules.size() == whole.operations.size());
  graph_.operations.clear();
  std::int32_t next_number = 0;
  for (const Operation& op : whole.operations) {
    if (op.communication) next_number = std::max(next_number, op.communication->transfer + 1);
  }
  struct Joint {
    Substitution rule;
    std::int32_t next_number;  // of the second leg
  };
  std::map<std::int32_t, Joint> joint;  // by transfer
  for (std::size_t i = 0; i < whole.operations.size(); ++i) {
    const Operation& op = whole.operations[i];
    first_leg_.push_back(make_id<OpId>(graph_.operations.size()));
    Joint how{may_be_substituted(whole, op, rules[i]) ? rules[i] : Substitution::none, next_number};
    const std::int32_t transfer = op.communication ? op.communication->transfer : -1;
    if (transfer >= 0) how = joint.try_emplace(transfer, how).first->second;
    if (how.rule == Substitution::none) {
      graph_.operations.push_back(op);
      origin_.push_back(make_id<OpId>(i));
      continue;
    }
    const SubstitutionRule& rule = rule_of(how.rule);
    const auto legs = static_cast<std::int32_t>(rule.legs.size());
    if (transfer >= 0) next_number = std::max(next_number, how.next_number + legs - 1);
    const auto [first, final] = carried_by_one(op);
    const Operand operand = op.reads.front().operand;
    ValueId in = first;
    for (std::int32_t s = 0; s < legs; ++s) {
      const RuleLeg& leg = rule.legs[s];
      const bool last = s + 1 == legs;
      const ValueId out = last ? final : make_id<ValueId>(graph_.values.size());
      if (!last) {
        Value between = graph_.value(first);
        between.name = fmt::format("{} after leg {}", graph_.value(final).name, s);
        between.shape = {elements_behind(whole, op, how.rule, s)};
        between.sharding = {};
        between.per_micro_batch = op.per_micro_batch;
        between.accumulated = false;
        graph_.values.push_back(std::move(between));
      }
      Operation made = op;
      made.rule = how.rule;
      made.leg = s;
      made.reads = {{operand, in, s == 0 ? op.reads.front().distance : 0}};
      made.writes = {{operand, out}};
      made.communication->collective = leg.collective;
      made.communication->scope = leg.scope;
      made.communication->bytes = wire_bytes(
          elements_of_leg(group_of(whole, op), leg, graph_.value(in), graph_.value(out)), op.communication->format);
      if (transfer >= 0 && s > 0) made.communication->transfer = how.next_number + s - 1;
      made.key.dims[0] = made.communication->bytes.value;
      graph_.operations.push_back(std::move(made));
      origin_.push_back(make_id<OpId>(i));
      in = out;
    }
  }
}

std::vector<OpId> SubstitutedGraph::legs_of(OpId whole) const {
  std::vector<OpId> legs;
  for (std::size_t s = first_leg_[whole.index()].index(); s < origin_.size() && origin_[s] == whole; ++s) {
    legs.push_back(make_id<OpId>(s));
  }
  return legs;
}

std::vector<std::int32_t> SubstitutedGraph::by_leg(const std::vector<std::int32_t>& of_whole) const {
  std::vector<std::int32_t> result;
  if (of_whole.empty()) return result;
  for (const OpId id : origin_) result.push_back(of_whole[id.index()]);
  return result;
}

void SubstitutedGraph::name_origins(StepGraph& made) const {
  for (Operation& op : made.operations) {
    for (Origin& origin : op.origins) origin.operation = origin_[origin.operation.index()];
  }
}

}  // namespace weft
