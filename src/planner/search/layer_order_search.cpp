// The part of the search that decides whether micro-batches go in layer order, and how (schedule/layer_order.hpp).
#include <algorithm>

#include "planner/search/plan_searcher.hpp"

namespace weft {
namespace {

// The dimensions that matter more, or less, when gradients are complete early.
constexpr DecisionSpace::Dimension kSearchedAgain[] = {DecisionSpace::kBuckets,      DecisionSpace::kLegs,
                                                       DecisionSpace::kUrgentFirst,  DecisionSpace::kWeave,
                                                       DecisionSpace::kBackwardRows, DecisionSpace::kForwardRows};

// All of a step's micro-batches in a group, then half of them, and so on down to 2; of each, sections of one layer,
// then of two, and so on.
std::vector<LayerOrder> layer_orders(std::int64_t layers, std::int64_t micro_batches) {
  std::vector<LayerOrder> orders;
  for (std::int64_t group = micro_batches; group > 1; group /= 2) {
    for (std::int64_t section = 1; 2 * section <= layers && section <= 8; section *= 2) {
      orders.push_back({static_cast<std::int32_t>(section), static_cast<std::int32_t>(group)});
    }
  }
  return orders;
}

}  // namespace

void PlanSearcher::add_layer_order(std::vector<Overlap>& overlaps, std::vector<Outcome>& outcomes) {
  const auto has_pairs = [&](const auto& known) { return known.first.chosen[DecisionSpace::kPairs] != 0; };
  auto base = known_.end();
  for (auto known = known_.begin(); known != known_.end(); ++known) {
    if (!has_pairs(*known) && (base == known_.end() || known->second < base->second)) base = known;
  }
  if (base == known_.end()) return;
  Decisions decisions = base->first;
  LayerOrder order;
  Outcome best;
  double left = layer_order_budget_;
  // Tries all at once, as far as the budget goes.
  const auto try_all = [&](const std::vector<std::pair<Decisions, LayerOrder>>& candidates) {
    std::vector<Overlap> tried;
    for (const auto& [candidate, by_layers] : candidates) {
      Overlap overlap = space_.overlap(candidate);
      overlap.order.by_layers = by_layers;
      left -= operations_in(overlap, graph_->micro_batches);
      if (left < 0) break;
      tried.push_back(std::move(overlap));
    }
    const std::vector<Outcome> found = evaluate_all(request_, graph_, tried);
    for (std::size_t i = 0; i < tried.size(); ++i) {
      if (!(found[i] < best)) continue;
      best = found[i];
      decisions = candidates[i].first;
      order = candidates[i].second;
    }
  };
  const auto uncut_of = [](Decisions cut) {
    cut.chosen[DecisionSpace::kForwardRows] = cut.chosen[DecisionSpace::kBackwardRows] = 0;
    return cut;
  };
  // Smaller groups hold less memory and hide less: they are for steps that do not fit otherwise.
  const bool hides_layer_traffic = request_.layout.tp > 1 || request_.layout.ep > 1;
  const std::vector<LayerOrder> orders = layer_orders(request_.model.layers, graph_->micro_batches);
  for (std::size_t i = 0; i < orders.size() && left > 0 && !(best.can_run && best.fits);) {
    std::vector<std::pair<Decisions, LayerOrder>> candidates;
    const std::int32_t group = orders[i].micro_batches;
    const Decisions uncut = uncut_of(decisions);
    for (; i < orders.size() && orders[i].micro_batches == group; ++i) {
      candidates.push_back({decisions, orders[i]});
      // Abreast, micro-batches hide each other's traffic: layers need not be cut for that.
      if (hides_layer_traffic) candidates.push_back({uncut, {orders[i].layers, orders[i].micro_batches, 2}});
    }
    try_all(candidates);
  }
  if (!best.can_run) return;
  // What hides the traffic of layers better, cuts or micro-batches abreast, shows only when the rest fits it.
  constexpr int kRounds = 2;
  for (int round = 0; round < kRounds; ++round) {
    for (const DecisionSpace::Dimension d : kSearchedAgain) {
      std::vector<std::pair<Decisions, LayerOrder>> candidates;
      for (std::size_t option = 0; option < space_.options(d); ++option) {
        if (option == decisions.chosen[d]) continue;
        candidates.push_back({decisions, order});
        candidates.back().first.chosen[d] = option;
      }
      try_all(candidates);
    }
    if (!hides_layer_traffic) break;
    LayerOrder other = order;
    other.abreast = order.abreast == 1 ? 2 : 1;
    try_all({{decisions, other}, {uncut_of(decisions), other}});
    if (order.abreast != other.abreast) break;
  }
  Overlap overlap = space_.overlap(decisions);
  overlap.order.by_layers = order;
  overlaps.push_back(std::move(overlap));
  outcomes.push_back(best);
}

}  // namespace weft
