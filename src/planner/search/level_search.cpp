// The part of the search that decides which layer traffic (tensor, context and expert parallelism) goes in levels:
// inside nodes and between them. It starts from the best plan found without, and nothing is taken that is not faster.
#include <algorithm>
#include <tuple>

#include "graph/substitute.hpp"
#include "planner/search/plan_searcher.hpp"

namespace weft {
namespace {

// What is decided together.
using TrafficKind = std::tuple<GroupKind, Role, Collective, Phase>;

TrafficKind kind_of(const Operation& op) {
  return {op.communication->group, op.role, op.communication->collective, op.phase};
}

std::vector<TrafficKind> kinds_in_levels(const StepGraph& graph, const std::vector<Substitution>& rules) {
  std::vector<TrafficKind> kinds;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (rules[i] == Substitution::none) continue;
    const TrafficKind kind = kind_of(graph.operations[i]);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

// The other half keeps its cuts.
LayerCuts with_cuts_of_pass(const StepGraph& graph, LayerCuts cuts, const LayerCuts& of_pass, bool forward) {
  if (cuts.parts.empty()) cuts = no_cuts(graph);
  for (std::size_t i = 0; i < cuts.parts.size(); ++i) {
    if ((graph.operations[i].phase == Phase::forward) != forward) continue;
    cuts.parts[i] = of_pass.parts[i];
    cuts.axes[i] = of_pass.axes[i];
  }
  return cuts;
}

class LevelChoice {
 public:
  LevelChoice(const StepGraph& graph, const DecisionSpace& space)
      : graph_(graph), space_(space), in_levels_(layer_traffic_in_levels(graph)) {
    kinds_ = kinds_in_levels(graph, in_levels_);
  }
  const std::vector<TrafficKind>& kinds() const { return kinds_; }

  // With all traffic of these kinds in levels, or as a whole.
  Overlap with(Overlap overlap, const std::vector<TrafficKind>& kinds, bool levels) const {
    std::vector<Substitution>& rules = overlap.partition.substitutions;
    if (rules.empty()) rules.assign(graph_.operations.size(), Substitution::none);
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (in_levels_[i] == Substitution::none) continue;
      if (std::find(kinds.begin(), kinds.end(), kind_of(graph_.operations[i])) == kinds.end()) continue;
      rules[i] = levels ? in_levels_[i] : Substitution::none;
    }
    return overlap;
  }
  bool are_in_levels(const Overlap& overlap, const TrafficKind& kind) const {
    const std::vector<Substitution>& rules = overlap.partition.substitutions;
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (in_levels_[i] != Substitution::none && kind_of(graph_.operations[i]) == kind)
        return rules[i] == in_levels_[i];
    }
    return false;
  }

  // Everything; forward or the rest; one group.
  std::vector<Overlap> starts(const Overlap& best) const {
    std::vector<Overlap> candidates{with(best, kinds_, true)};
    const auto add = [&](const auto& belongs) {
      std::vector<TrafficKind> some;
      std::copy_if(kinds_.begin(), kinds_.end(), std::back_inserter(some), belongs);
      if (some.empty() || some.size() == kinds_.size()) return;
      candidates.push_back(with(best, some, true));
    };
    add([](const TrafficKind& kind) { return std::get<Phase>(kind) == Phase::forward; });
    add([](const TrafficKind& kind) { return std::get<Phase>(kind) != Phase::forward; });
    for (const GroupKind group : {GroupKind::ep, GroupKind::tp, GroupKind::cp}) {
      add([&](const TrafficKind& kind) { return std::get<GroupKind>(kind) == group; });
    }
    return candidates;
  }

  // One kind the other way; other parts, which levels may make worth it.
  std::vector<Overlap> changes(const Overlap& best) const {
    std::vector<Overlap> candidates;
    for (const TrafficKind& kind : kinds_) candidates.push_back(with(best, {kind}, !are_in_levels(best, kind)));
    for (const bool forward : {true, false}) {
      for (const LayerCuts& cuts : space_.expert_cuts_of(forward)) {
        candidates.push_back(best);
        candidates.back().partition.layers = with_cuts_of_pass(graph_, best.partition.layers, cuts, forward);
      }
      for (const std::int32_t rows : space_.rows_of(forward)) {
        candidates.push_back(best);
        (forward ? candidates.back().partition.forward_rows : candidates.back().partition.backward_rows) = rows;
      }
    }
    std::erase(candidates, best);
    return candidates;
  }

 private:
  const StepGraph& graph_;
  const DecisionSpace& space_;
  std::vector<Substitution> in_levels_;
  std::vector<TrafficKind> kinds_;
};

}  // namespace

void PlanSearcher::add_levels(std::vector<Overlap>& overlaps, std::vector<Outcome>& outcomes) {
  const LevelChoice choice(graph_, space_);
  const std::size_t index = index_of_best(outcomes);
  if (choice.kinds().empty() || !outcomes[index].can_run) return;
  const Overlap found = overlaps[index];
  // Orders that are searched for long cost most of the work: that comes last.
  const double of_visits = static_cast<double>(found.weave.visits) / 10;
  Overlap best = found;
  best.weave.visits = 0;
  Outcome of_best;
  const auto try_all = [&](const std::vector<Overlap>& candidates, double reserved) {
    std::vector<Overlap> tried;
    for (const Overlap& candidate : candidates) {
      const double work =
          operations_in(candidate, graph_->micro_batches) + static_cast<double>(candidate.weave.visits) / 10;
      if (level_budget_ < work + reserved) break;
      level_budget_ -= work;
      tried.push_back(candidate);
    }
    return take_better(tried, best, of_best);
  };
  const double reserved = of_visits < level_budget_ ? of_visits : 0;
  for (bool better = try_all(choice.starts(best), reserved); better;) better = try_all(choice.changes(best), reserved);
  if (!of_best.can_run) return;
  if (of_visits > 0) {
    Overlap longer = best;
    longer.weave.visits = found.weave.visits;
    try_all({longer}, 0);
  }
  overlaps.push_back(std::move(best));
  outcomes.push_back(of_best);
}

}  // namespace weft
