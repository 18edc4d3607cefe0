// The part of the search that decides whether weight gradients run under the next forward (schedule/late_order.hpp).
#include <algorithm>
#include <tuple>
#include <utility>

#include "planner/schedule/late_order.hpp"
#include "planner/search/plan_searcher.hpp"

namespace weft {
namespace {

// What is worth deciding anew: with work from the step before, forward has less need of small parts.
constexpr DecisionSpace::Dimension kDecidedAnew[] = {DecisionSpace::kForwardExperts, DecisionSpace::kBackwardExperts,
                                                     DecisionSpace::kForwardRows,    DecisionSpace::kBackwardRows,
                                                     DecisionSpace::kBuckets,        DecisionSpace::kLegs,
                                                     DecisionSpace::kUrgentFirst,    DecisionSpace::kWeaveVisits};

}  // namespace

void PlanSearcher::add_late(std::vector<Overlap>& overlaps, std::vector<Outcome>& outcomes) {
  const auto better = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto base = std::min_element(known_.begin(), known_.end(), better);
  if (base == known_.end()) return;
  Decisions decisions = base->first;
  decisions.chosen[DecisionSpace::kWeaveVisits] = 0;  // which is most of the work: only once all else is decided
  std::int32_t late_layers = 0;
  Outcome best;
  double left = late_budget_;
  using Candidate = std::pair<Decisions, std::int32_t>;  // and the layers whose weight gradients are all late
  const auto with_late = [&](const Candidate& candidate) {
    Overlap overlap = space_.overlap(candidate.first);
    overlap.weave.enabled = true;
    overlap.weave.late_layers = candidate.second;
    return overlap;
  };
  // Tries all at once, as far as the budget goes.
  const auto try_all = [&](const std::vector<Candidate>& candidates) {
    std::vector<Overlap> tried;
    for (const Candidate& candidate : candidates) {
      Overlap overlap = with_late(candidate);
      left -= operations_in(overlap, graph_->micro_batches) + static_cast<double>(overlap.weave.visits) / 10;
      if (left < 0) break;
      tried.push_back(std::move(overlap));
    }
    const std::vector<Outcome> found = evaluate_all(request_, graph_, tried);
    bool changed = false;
    for (std::size_t i = 0; i < tried.size(); ++i) {
      if (!(found[i] < best)) continue;
      best = found[i];
      std::tie(decisions, late_layers) = candidates[i];
      changed = true;
    }
    return changed;
  };
  try_all({{decisions, 0}, {space_.start(), 0}});
  for (bool changed = best.can_run; changed && left > 0;) {
    changed = false;
    for (const DecisionSpace::Dimension d : kDecidedAnew) {
      std::vector<Candidate> candidates;
      for (std::size_t option = 0; option < space_.options(d); ++option) {
        if (option == decisions.chosen[d]) continue;
        candidates.push_back({decisions, late_layers});
        candidates.back().first.chosen[d] = option;
      }
      changed = try_all(candidates) || changed;
    }
    std::vector<Candidate> candidates;
    for (const std::int64_t eighths : {0, 1, 2, 3, 4, 6, 8}) {
      const auto layers = static_cast<std::int32_t>(request_.model.layers * eighths / 8);
      if (layers != late_layers) candidates.push_back({decisions, layers});
    }
    changed = try_all(candidates) || changed;
  }
  if (!best.can_run) return;
  overlaps.push_back(with_late({decisions, late_layers}));
  outcomes.push_back(best);
}

}  // namespace weft
