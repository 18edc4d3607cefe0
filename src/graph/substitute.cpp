#include "graph/substitute.hpp"

#include <algorithm>
#include <optional>
#include <set>

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
std::int64_t elements_behind(const StepGraph& graph, const Operation& op, const TransferRule& by, std::int64_t leg) {
  const std::int64_t read = graph.value(carried_by_one(op).read).elements();
  const std::int64_t written = graph.value(carried_by_one(op).written).elements();
  const ClassGroup& group = group_of(graph, op);
  const auto divided = [&](std::int64_t n) { return (read + n - 1) / n; };
  const auto members = [&](Scope scope) { return group.scoped(scope, by.levels).view.size; };
  switch (by.rule) {
    case Substitution::all_reduce_in_halves:
      return divided(group.view.size);
    case Substitution::all_reduce_in_levels:
      return divided(members(Scope::inner));
    case Substitution::all_to_all_in_levels:
    case Substitution::all_to_all_in_three_levels:
      return read;
    case Substitution::all_reduce_in_three_levels: {
      const bool is_above_middle = leg == 1 || leg == 2;
      const std::int64_t middle = members(Scope::middle);
      return divided(members(Scope::inner) * middle) * (is_above_middle ? 1 : middle);
    }
    case Substitution::reduce_scatter_in_three_levels:
      return std::min(read, written) * members(leg == 0 ? Scope::outer : Scope::top);
    case Substitution::all_gather_in_three_levels:
      return std::min(read, written) * members(leg == 0 ? Scope::top : Scope::outer);
    default:
      return std::min(read, written) * members(Scope::outer);
  }
}

// Of all that lies between the legs.
std::int64_t most_elements_between(const StepGraph& graph, const Operation& op, const TransferRule& rule) {
  std::int64_t most = 0;
  for (std::int64_t leg = 0; leg + 1 < std::ssize(rule_of(rule.rule).legs); ++leg) {
    most = std::max(most, elements_behind(graph, op, rule, leg));
  }
  return most;
}

// What the buffer of a leg among so many members has, as Communication counts it.
std::int64_t elements_of_leg(std::int64_t members, const RuleLeg& leg, const Value& in, const Value& out) {
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
bool allows_layer_rule(const StepGraph& graph, const Operation& op, const TransferRule& by) {
  if (std::find(std::begin(kLayerRules), std::end(kLayerRules), by.rule) == std::end(kLayerRules)) return false;
  if (op.communication->group == GroupKind::ep && graph.tokens.routed.forwarded) return false;
  if (rule_of(by.rule).collective != Collective::all_reduce) return true;
  const LevelSizes levels = by.levels == kOwnLevels ? group_of(graph, op).level_sizes() : by.levels;
  const std::int64_t slices = levels.inner * (has_three_levels(rule_of(by.rule)) ? levels.middle : 1);
  return graph.value(carried_by_one(op).read).shape.back() % slices == 0;
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

bool may_be_substituted(const StepGraph& graph, const Operation& op, const TransferRule& by) {
  if (std::find(std::begin(kGraphRules), std::end(kGraphRules), by.rule) == std::end(kGraphRules)) return false;
  const SubstitutionRule& rule = rule_of(by.rule);
  if (!op.communication || op.communication->collective != rule.collective) return false;
  if (!is_layer_traffic(op) && !is_parameter_traffic(op)) return false;
  if (!carries_one_value(op) || op.communication->format.type == ElementType::u8) return false;
  if (!has_levels(rule) && by.levels != kOwnLevels) return false;
  const ClassGroup& group = group_of(graph, op);
  for (const RuleLeg& leg : rule.legs) {
    if (!group.has_scope(leg.scope, by.levels)) return false;
  }
  if (is_layer_traffic(op) && !allows_layer_rule(graph, op, by)) return false;
  const std::int64_t whole =
      std::max(graph.value(carried_by_one(op).read).elements(), graph.value(carried_by_one(op).written).elements());
  return whole > 0 && most_elements_between(graph, op, by) <= whole;
}

std::vector<TransferRule> possible_rules(const StepGraph& graph, const Operation& op) {
  std::vector<TransferRule> rules;
  const auto add = [&](const TransferRule& rule) {
    if (may_be_substituted(graph, op, rule)) rules.push_back(rule);
  };
  if (!op.communication) return rules;
  const ClassGroup& group = group_of(graph, op);
  for (const Substitution rule : kGraphRules) {
    add(rule);
    if (!has_levels(rule_of(rule))) continue;
    const std::vector<std::int64_t>& borders = group.borders;
    for (std::size_t i = 0; i < borders.size(); ++i) {
      if (!has_three_levels(rule_of(rule))) {
        if (borders[i] != group.level_sizes().inner) add({rule, {borders[i], 1}});
        continue;
      }
      for (std::size_t j = i + 1; j < borders.size(); ++j) {
        const LevelSizes levels(borders[i], borders[j] / borders[i]);
        if (levels != group.level_sizes()) add({rule, levels});
      }
    }
  }
  return rules;
}

std::vector<Nesting> nestings(const StepGraph& graph) {
  std::set<std::size_t> fabrics;
  for (const RankClass& c : graph.classes) {
    for (const ClassGroup& group : c.groups) {
      const std::vector<std::int64_t>& within = group.view.within;
      for (const std::int64_t border : group.borders) {
        fabrics.insert(static_cast<std::size_t>(std::find(within.begin(), within.end(), border) - within.begin()));
      }
    }
  }
  std::vector<Nesting> found;
  for (const std::size_t fabric : fabrics) found.push_back({fabric});
  for (const std::size_t inner : fabrics) {
    for (const std::size_t outer : fabrics) {
      if (inner < outer) found.push_back({inner, outer});
    }
  }
  return found;
}

namespace {

// The rule in the levels that the nesting gives to a group; nothing where they are too few.
std::optional<TransferRule> rule_in(const ClassGroup& group, Substitution rule, const Nesting& nesting) {
  if (nesting.empty() || !has_levels(rule_of(rule))) return TransferRule(rule);
  std::vector<std::int64_t> borders;
  for (const std::size_t fabric : nesting) {
    if (fabric >= group.view.within.size()) continue;
    const std::int64_t within = group.view.within[fabric];
    const bool is_border = std::find(group.borders.begin(), group.borders.end(), within) != group.borders.end();
    if (is_border && (borders.empty() || borders.back() != within)) borders.push_back(within);
  }
  if (std::ssize(borders) < (has_three_levels(rule_of(rule)) ? 2 : 1)) return std::nullopt;
  const LevelSizes own = group.level_sizes();
  if (!has_three_levels(rule_of(rule))) {
    return own.inner == borders.back() ? TransferRule(rule) : TransferRule(rule, {borders.back(), 1});
  }
  const LevelSizes levels(borders[0], borders[1] / borders[0]);
  return levels == own ? TransferRule(rule) : TransferRule(rule, levels);
}

}  // namespace

std::vector<TransferRule> first_possible(const StepGraph& graph, const std::vector<Substitution>& wanted,
                                         const Nesting& nesting) {
  std::vector<TransferRule> rules(graph.operations.size());
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (!op.communication) continue;
    for (const Substitution name : wanted) {
      const std::optional<TransferRule> rule = rule_in(group_of(graph, op), name, nesting);
      if (!rule || !may_be_substituted(graph, op, *rule)) continue;
      rules[i] = *rule;
      break;
    }
  }
  return rules;
}

std::vector<TransferRule> first_possible_of_parameters(const StepGraph& graph, const std::vector<Substitution>& wanted,
                                                       const Nesting& nesting) {
  std::vector<TransferRule> rules = first_possible(graph, wanted, nesting);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (is_layer_traffic(graph.operations[i])) rules[i] = Substitution::none;
  }
  return rules;
}

std::vector<TransferRule> layer_traffic_in_levels(const StepGraph& graph, const Nesting& nesting) {
  std::vector<TransferRule> rules = first_possible(graph, {std::begin(kLayerRules), std::end(kLayerRules)}, nesting);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (!is_layer_traffic(graph.operations[i])) rules[i] = Substitution::none;
  }
  return rules;
}

SubstitutedGraph::SubstitutedGraph(const StepGraph& whole, const std::vector<TransferRule>& rules) : graph_(whole) {
  WEFT_CHECK(rules.size() == whole.operations.size());
  graph_.operations.clear();
  std::int32_t next_number = 0;
  for (const Operation& op : whole.operations) {
    if (op.communication) next_number = std::max(next_number, op.communication->transfer + 1);
  }
  struct Joint {
    TransferRule by;
    std::int32_t next_number;  // of the second leg
  };
  std::map<std::int32_t, Joint> joint;  // by transfer
  for (std::size_t i = 0; i < whole.operations.size(); ++i) {
    const Operation& op = whole.operations[i];
    first_leg_.push_back(make_id<OpId>(graph_.operations.size()));
    Joint how{may_be_substituted(whole, op, rules[i]) ? rules[i] : TransferRule(), next_number};
    const std::int32_t transfer = op.communication ? op.communication->transfer : -1;
    if (transfer >= 0) how = joint.try_emplace(transfer, how).first->second;
    if (how.by.rule == Substitution::none) {
      graph_.operations.push_back(op);
      origin_.push_back(make_id<OpId>(i));
      continue;
    }
    const SubstitutionRule& rule = rule_of(how.by.rule);
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
        between.shape = {elements_behind(whole, op, how.by, s)};
        between.sharding = {};
        between.per_micro_batch = op.per_micro_batch;
        between.accumulated = false;
        graph_.values.push_back(std::move(between));
      }
      Operation made = op;
      made.rule = how.by.rule;
      made.leg = s;
      made.reads = {{operand, in, s == 0 ? op.reads.front().distance : 0}};
      made.writes = {{operand, out}};
      made.communication->collective = leg.collective;
      made.communication->scope = leg.scope;
      made.communication->levels = how.by.levels;
      const std::int64_t members = group_of(whole, op).scoped(leg.scope, how.by.levels).view.size;
      made.communication->bytes =
          wire_bytes(elements_of_leg(members, leg, graph_.value(in), graph_.value(out)), op.communication->format);
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
