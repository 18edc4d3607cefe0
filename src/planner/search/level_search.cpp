// The part of the search that decides which layer traffic (tensor, context and expert parallelism) goes in levels:
// inside nodes and between them, or below a switch and between switches besides. It starts from the best plan found
// without, and nothing is taken that is not faster.
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
  LevelChoice(const StepGraph& graph, const DecisionSpace& space) : graph_(graph), space_(space) {
    options_.emplace_back(graph.operations.size());
    add_option({});
    std::vector<Nesting> all = nestings(graph);
    std::reverse(all.begin(), all.end());  // more levels first: they gain more
    for (const Nesting& nesting : all) add_option(nesting);
  }
  const std::vector<TrafficKind>& kinds() const { return kinds_; }

  // Everything; forward or the rest; one group.
  std::vector<Overlap> starts(const Overlap& best) const {
    std::vector<Overlap> candidates;
    const auto add = [&](const auto& belongs) {
      std::vector<TrafficKind> some;
      std::copy_if(kinds_.begin(), kinds_.end(), std::back_inserter(some), belongs);
      if (some.empty() || (some.size() == kinds_.size() && !candidates.empty())) return;
      for (std::size_t option = 1; option < options_.size(); ++option) {
        add_new(candidates, with(best, some, options_[option]));
      }
    };
    add([](const TrafficKind&) { return true; });
    add([](const TrafficKind& kind) { return std::get<Phase>(kind) == Phase::forward; });
    add([](const TrafficKind& kind) { return std::get<Phase>(kind) != Phase::forward; });
    for (const GroupKind group : {GroupKind::ep, GroupKind::tp, GroupKind::cp}) {
      add([&](const TrafficKind& kind) { return std::get<GroupKind>(kind) == group; });
    }
    return candidates;
  }

  // One kind in other levels; other parts, which levels may make worth it.
  std::vector<Overlap> changes(const Overlap& best) const {
    std::vector<Overlap> candidates;
    for (const TrafficKind& kind : kinds_) {
      for (const std::vector<TransferRule>& option : options_) add_new(candidates, with(best, {kind}, option));
    }
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
  void add_option(const Nesting& nesting) {
    std::vector<TransferRule> rules = layer_traffic_in_levels(graph_, nesting);
    if (std::find(options_.begin(), options_.end(), rules) != options_.end()) return;
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (rules[i] == Substitution::none) continue;
      const TrafficKind kind = kind_of(graph_.operations[i]);
      if (std::find(kinds_.begin(), kinds_.end(), kind) == kinds_.end()) kinds_.push_back(kind);
    }
    options_.push_back(std::move(rules));
  }
  // Some traffic is the same in several options.
  static void add_new(std::vector<Overlap>& candidates, Overlap candidate) {
    if (std::find(candidates.begin(), candidates.end(), candidate) == candidates.end()) {
      candidates.push_back(std::move(candidate));
    }
  }

  // With all traffic of these kinds as in an option.
  Overlap with(Overlap overlap, const std::vector<TrafficKind>& kinds, const std::vector<TransferRule>& option) const {
    std::vector<TransferRule>& rules = overlap.partition.substitutions;
    if (rules.empty()) rules.resize(graph_.operations.size());
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const Operation& op = graph_.operations[i];
      if (!is_layer_traffic(op)) continue;
      if (std::find(kinds.begin(), kinds.end(), kind_of(op)) != kinds.end()) rules[i] = option[i];
    }
    return overlap;
  }

  const StepGraph& graph_;
  const DecisionSpace& space_;
  std::vector<std::vector<TransferRule>> options_;  // by operation: whole, then in levels
  std::vector<TrafficKind> kinds_;                  // that go in levels in any of them
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
