#include "planner/partition/choice_tree.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"
#include "planner/partition/row_choice.hpp"

namespace weft {
namespace {

constexpr double kWorthIt = 0.99;

class ChoiceTreeBuilder {
 public:
  ChoiceTreeBuilder(const StepGraph& graph, const CostModel& cost, OpId id)
      : graph_(graph), cost_(cost), op_(graph.op(id)) {
    if (op_.per_micro_batch && may_be_cut(graph_, op_)) find_neighbours(id);
  }

  ChoiceNode build() const {
    ChoiceNode root;
    root.under.push_back(of_rule({}));
    if (op_.communication->transfer < 0) {
      for (const TransferRule& rule : possible_rules(graph_, op_)) root.under.push_back(of_rule(rule));
    }
    return with_figures_of_best(std::move(root));
  }

 private:
  const ClassGroup& group() const { return graph_.classes[op_.rank_class.index()].group(op_.communication->group); }

  // Finds what makes the data and what uses it, of the same class and micro-batch.
  void find_neighbours(OpId id) {
    const OpLists writers = writers_by_value(graph_), readers = readers_by_value(graph_);
    const auto note = [&](OpId other) {
      const Operation& candidate = graph_.op(other);
      const bool cut = candidate.per_micro_batch && !candidate.communication && may_be_cut(graph_, candidate);
      if (cut && std::find(neighbours_.begin(), neighbours_.end(), other) == neighbours_.end()) {
        neighbours_.push_back(other);
      }
    };
    for (const Read& read : graph_.op(id).reads) {
      for (const OpId writer : writers[read.value.index()]) note(writer);
    }
    for (const Write& write : graph_.op(id).writes) {
      for (const OpId reader : readers[write.value.index()]) note(reader);
    }
  }

  ChoiceNode of_rule(const TransferRule& rule) const {
    ChoiceNode node;
    node.rule = rule;
    for (std::int32_t parts = 1; parts <= kMaxRowCuts; parts *= 2) {
      const bool cut = parts == 1 || (may_be_cut(graph_, op_) && op_.communication->transfer < 0 &&
                                      may_be_cut_into(graph_, op_, parts));
      if (cut) node.under.push_back(leaf(rule, parts));
    }
    return with_figures_of_best(std::move(node));
  }

  ChoiceNode leaf(const TransferRule& rule, std::int32_t parts) const {
    ChoiceNode leaf;
    leaf.rule = rule;
    leaf.parts = parts;
    double sum = 0, longest = 0;
    for (const double seconds : leg_seconds(rule, parts)) {
      sum += seconds;
      longest = std::max(longest, seconds);
    }
    leaf.transfer_s = sum + (parts - 1) * longest;
    double whole = 0, cut = 0;
    for (const OpId neighbour : neighbours_) {
      const Operation& op = graph_.op(neighbour);
      if (parts > 1 && !may_be_cut_into(graph_, op, parts)) continue;
      whole += seconds(cost_.compute(op));
      cut += parts * seconds(cost_.compute(one_of(op, parts)));
    }
    leaf.left_s = leaf.transfer_s - std::min(leaf.transfer_s, cut) * (parts - 1) / parts;
    leaf.loss_s = std::max(0.0, cut - whole);
    return leaf;
  }

  // Of one part.
  std::vector<double> leg_seconds(const TransferRule& by, std::int32_t parts) const {
    const Operation part = one_of(op_, parts);
    if (by.rule == Substitution::none) return {fastest(part)};
    std::vector<double> result;
    for (const RuleLeg& leg : rule_of(by.rule).legs) result.push_back(seconds_of(by, leg, part));
    return result;
  }

  double seconds_of(const TransferRule& by, const RuleLeg& leg, const Operation& part) const {
    Operation own = part;
    own.rule = by.rule;
    own.communication->levels = by.levels;
    own.communication->collective = leg.collective;
    own.communication->scope = leg.scope;
    if (leg.collective == Collective::all_to_all) return fastest(own);  // all that a rank has goes through every leg
    const LevelSizes levels = by.levels == kOwnLevels ? group().level_sizes() : by.levels;
    if (leg.scope == Scope::outer || leg.scope == Scope::middle) {
      own.communication->bytes = {part.communication->bytes.value / levels.inner};
    } else if (leg.scope == Scope::top) {
      own.communication->bytes = {part.communication->bytes.value / (levels.inner * levels.middle)};
    }
    return fastest(own);
  }

  double fastest(Operation op) const {
    if (cost_.choose_program(op)) return seconds(cost_.alone(op));
    op.communication->algorithm = Algorithm::ring;
    double least = seconds(cost_.alone(op));
    if (op.communication->collective == Collective::all_reduce) {
      op.communication->algorithm = Algorithm::tree;
      least = std::min(least, seconds(cost_.alone(op)));
    }
    return least;
  }

  // Returns the node with the figures of its cheapest leaf, with fewer parts on ties.
  static ChoiceNode with_figures_of_best(ChoiceNode node) {
    const auto rank = [](const ChoiceNode& n) { return std::pair(n.cost_s(), n.parts); };
    const ChoiceNode& best = *std::min_element(node.under.begin(), node.under.end(),
                                               [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    std::vector<ChoiceNode> under = std::move(node.under);
    ChoiceNode result{best.rule, best.parts, best.transfer_s, best.left_s, best.loss_s, {}};
    result.under = std::move(under);
    return result;
  }

  const StepGraph& graph_;
  const CostModel& cost_;
  const Operation& op_;
  std::vector<OpId> neighbours_;
};

// Layer traffic has no other rules, and its parts are those of its layer.
bool may_go_in_levels(const StepGraph& graph, const Operation& op) {
  return !possible_rules(graph, op).empty();
}

}  // namespace

ChoiceNode choice_tree(const StepGraph& graph, const CostModel& cost, OpId communication) {
  return ChoiceTreeBuilder(graph, cost, communication).build();
}

CheapestChoices cheapest_choices(const StepGraph& graph, const CostModel& cost) {
  // Class, group, collective, bytes, and of layer traffic the role.
  using Kind = std::tuple<std::int32_t, GroupKind, Collective, std::int64_t, Role>;
  struct Choice {
    TransferRule rule;
    std::int32_t parts = 1;
  };
  std::map<Kind, Choice> known;
  CheapestChoices choices{std::vector<TransferRule>(graph.operations.size()),
                          std::vector<std::int32_t>(graph.operations.size(), 1)};
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    const bool of_layer = is_layer_traffic(op);
    if (of_layer ? !may_go_in_levels(graph, op) : op.role != Role::grad_reduce && op.role != Role::param_gather) {
      continue;
    }
    const Communication& c = *op.communication;
    const auto [entry, first] = known.try_emplace(
        {op.rank_class.value, c.group, c.collective, c.bytes.value, of_layer ? op.role : Role::update});
    if (first) {
      const ChoiceNode tree = choice_tree(graph, cost, make_id<OpId>(i));
      const ChoiceNode& none = tree.under.front();
      const bool better = tree.cost_s() < kWorthIt * none.cost_s();
      entry->second = better ? Choice{tree.rule, tree.parts} : Choice{{}, none.parts};
    }
    const Choice choice = entry->second;
    if (choice.rule != Substitution::none && !may_be_substituted(graph, op, choice.rule)) continue;
    choices.rules[i] = choice.rule;
    if (!op.per_micro_batch && may_be_cut_into(graph, op, choice.parts)) choices.parts[i] = choice.parts;
  }
  if (std::all_of(choices.rules.begin(), choices.rules.end(), [](auto rule) { return rule == Substitution::none; })) {
    choices.rules.clear();
  }
  if (std::all_of(choices.parts.begin(), choices.parts.end(), [](auto parts) { return parts == 1; })) {
    choices.parts.clear();
  }
  return choices;
}

}  // namespace weft
