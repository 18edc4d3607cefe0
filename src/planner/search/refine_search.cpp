// The last part of the search: what the space of decisions gives to all transfers alike, each may have for itself, and
// weight gradients may come before what reads their weights. Nothing is taken that is not faster.
#include <algorithm>

#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"
#include "planner/partition/cut.hpp"
#include "planner/search/plan_searcher.hpp"

namespace weft {
namespace {

constexpr std::int32_t kPartCounts[] = {1, 2, 3, 4, 8};
constexpr std::int32_t kGrowingPartCounts[] = {-3, -4};  // as cut_operations takes them
constexpr std::int64_t kFewVisits = 4'000;

// Transfers of a step that travel together, and are carried out alike.
using TransferUnit = std::vector<OpId>;

// The units of a choice, the largest first.
std::vector<TransferUnit> transfer_units(const StepGraph& graph, const PartitionChoice& choice) {
  std::vector<TransferUnit> units;
  std::vector<bool> taken(graph.operations.size(), false);
  const auto is_once_a_step = [&](OpId id) {
    const Operation& op = graph.op(id);
    return !op.per_micro_batch && (op.role == Role::grad_reduce || op.role == Role::param_gather);
  };
  for (const MergeSet& set : choice.buckets) {
    for (const OpId id : set.members) taken[id.index()] = true;
    if (is_once_a_step(set.members.front())) units.push_back(set.members);
  }
  for (const OpId id : graph.operations.ids()) {
    if (!taken[id.index()] && is_once_a_step(id)) units.push_back({id});
  }
  const auto bytes = [&](const TransferUnit& unit) {
    std::int64_t sum = 0;
    for (const OpId id : unit) sum += graph.op(id).communication->bytes.value;
    return sum;
  };
  std::stable_sort(units.begin(), units.end(),
                   [&](const TransferUnit& a, const TransferUnit& b) { return bytes(a) > bytes(b); });
  return units;
}

// The choice with another rule and number of parts for a unit; nothing else changes.
PartitionChoice with_unit(const StepGraph& graph, const PartitionChoice& choice, const TransferUnit& unit,
                          const TransferRule& rule, std::int32_t parts) {
  PartitionChoice result = choice;
  if (result.substitutions.empty()) result.substitutions.resize(graph.operations.size());
  if (result.parts.empty()) result.parts.assign(graph.operations.size(), 1);
  for (const OpId id : unit) {
    result.substitutions[id.index()] = rule;
    result.parts[id.index()] = parts;
  }
  return result;
}

std::vector<PartitionChoice> choices_for(const StepGraph& graph, const PartitionChoice& now, const TransferUnit& unit) {
  std::vector<TransferRule> rules = possible_rules(graph, graph.op(unit.front()));
  rules.insert(rules.begin(), TransferRule());
  std::vector<PartitionChoice> choices;
  for (const TransferRule& rule : rules) {
    for (const std::int32_t parts : kPartCounts) {
      // What is merged stays whole.
      const bool may_be_cut = unit.size() == 1 && may_be_cut_into(graph, graph.op(unit.front()), parts);
      if (parts == 1 || may_be_cut) choices.push_back(with_unit(graph, now, unit, rule, parts));
    }
  }
  return choices;
}

// A unit that is better in parts may be better still in parts that grow.
std::vector<PartitionChoice> growing_choices_for(const StepGraph& graph, const PartitionChoice& now,
                                                 const TransferUnit& unit) {
  const std::size_t first = unit.front().index();
  if (unit.size() > 1 || now.parts.empty() || now.parts[first] == 1) return {};
  const TransferRule rule = now.substitutions.empty() ? TransferRule() : now.substitutions[first];
  std::vector<PartitionChoice> choices;
  for (const std::int32_t parts : kGrowingPartCounts) {
    if (!may_be_cut_into(graph, graph.op(unit.front()), pieces_of_growing(-parts))) continue;
    choices.push_back(with_unit(graph, now, unit, rule, parts));
  }
  return choices;
}

// Other orders of the same operations. What `urgent_first` updates beside compute finds nobody using it only where
// weight gradients come behind those who read the weights.
std::vector<Overlap> with_other_orders(const Overlap& overlap) {
  std::vector<Overlap> candidates;
  for (const std::int64_t visits : {std::int64_t{0}, kFewVisits}) {
    for (const auto& [urgent, free_gradients] :
         {std::pair(false, true), std::pair(false, false), std::pair(true, false)}) {
      if (overlap.weave.is_late() && free_gradients) continue;  // they are free there already
      Overlap other = overlap;
      other.weave = {.enabled = true,
                     .late_layers = overlap.weave.late_layers,
                     .free_weight_grads = free_gradients,
                     .visits = visits};
      other.order.urgent_first = urgent;
      candidates.push_back(std::move(other));
    }
  }
  return candidates;
}

// Every transfer by itself, whole and in one leg.
Overlap with_single_transfers(Overlap overlap) {
  overlap.partition.buckets.clear();
  overlap.partition.parts.clear();
  overlap.partition.substitutions.clear();
  return overlap;
}

}  // namespace

void PlanSearcher::add_refined(std::vector<Overlap>& overlaps, std::vector<Outcome>& outcomes) {
  const std::size_t best = index_of_best(outcomes);
  const bool is_whole_step = request_.layout.zero < 3 && request_.layout.reduces_once_a_step() &&
                             request_.layout.pp == 1 && request_.layout.layer_group == 1;
  if (!outcomes[best].can_run || extrapolates() || !is_whole_step || overlaps[best].weave.pairs) return;
  const Overlap found = overlaps[best];
  for (const Overlap& start : {found, with_single_transfers(found)}) {
    auto [refined, outcome] = refine(start, refine_budget_ / 2);
    if (!outcome.can_run) continue;
    overlaps.push_back(std::move(refined));
    outcomes.push_back(outcome);
  }
}

std::pair<Overlap, PlanSearcher::Outcome> PlanSearcher::refine(Overlap best, double budget) {
  Outcome of_best;
  const auto try_all = [&](const std::vector<Overlap>& candidates) {
    std::vector<Overlap> tried;
    for (const Overlap& candidate : candidates) {
      budget -= operations_in(candidate, graph_->micro_batches) + static_cast<double>(candidate.weave.visits) / 10;
      if (budget < 0) break;
      tried.push_back(candidate);
    }
    return take_better(tried, best, of_best);
  };
  for (bool better = true; better && budget > 0;) {
    better = try_all(with_other_orders(best));
    for (const TransferUnit& unit : transfer_units(graph_, best.partition)) {
      const auto try_choices = [&](std::vector<PartitionChoice> choices) {
        std::vector<Overlap> candidates;
        for (PartitionChoice& choice : choices) {
          if (choice == best.partition) continue;
          candidates.push_back(best);
          candidates.back().partition = std::move(choice);
        }
        return try_all(candidates);
      };
      better = try_choices(choices_for(graph_, best.partition, unit)) || better;
      better = try_choices(growing_choices_for(graph_, best.partition, unit)) || better;
      if (budget < 0) break;
    }
  }
  return {best, of_best};
}

}  // namespace weft
