// The part of the search that decides who moves the bytes of transfers (schedule/movers.hpp), once all else is decided:
// first by one rule for all, then for each kind of transfer by itself.
#include <algorithm>

#include "planner/passes.hpp"
#include "planner/schedule/movers.hpp"
#include "planner/search/plan_searcher.hpp"

namespace weft {
namespace {

constexpr int kMoverRounds = 2;  // each simulates the whole step twice for every kind
constexpr MoverRule kMoverRules[] = {MoverRule::library, MoverRule::least_loss, MoverRule::in_balance};

MoverChoice with_rule(MoverChoice choice, const MoverKind& kind, MoverRule rule) {
  std::erase_if(choice.by_kind, [&](const auto& entry) { return entry.first == kind; });
  if (rule != choice.rule) choice.by_kind.emplace_back(kind, rule);
  return choice;
}

}  // namespace

void PlanSearcher::add_movers(std::vector<Overlap>& overlaps, std::vector<Outcome>& outcomes) {
  const std::size_t index = index_of_best(outcomes);
  if (!outcomes[index].can_run) return;
  Overlap best = overlaps[index];
  const WholePlan made = overlapped_plan(request_, graph_, "weft", best);
  const Cluster cluster(request_.cluster);
  const std::vector<MoverKind> kinds =
      kinds_with_movers(made.plan(), CostModel(made.plan().graph, cluster, request_.profile, request_.programs));
  if (kinds.empty()) return;
  // As the whole step has it: what was extrapolated from few micro-batches cannot be compared with it.
  Outcome of_best = evaluate(request_, graph_, best);
  for (Outcome& outcome : outcomes) outcome = {};
  outcomes[index] = of_best;
  const auto try_all = [&](const std::vector<MoverChoice>& choices) {
    std::vector<Overlap> tried(choices.size(), best);
    for (std::size_t i = 0; i < choices.size(); ++i) tried[i].movers = choices[i];
    return take_better(tried, best, of_best);
  };
  try_all({{MoverRule::least_loss, {}}, {MoverRule::in_balance, {}}});
  bool better = kinds.size() > 1;
  for (int round = 0; better && round < kMoverRounds; ++round) {
    better = false;
    for (const MoverKind& kind : kinds) {
      std::vector<MoverChoice> choices;
      for (const MoverRule rule : kMoverRules) {
        MoverChoice choice = with_rule(best.movers, kind, rule);
        if (choice != best.movers) choices.push_back(std::move(choice));
      }
      better = try_all(choices) || better;
    }
  }
  overlaps.push_back(std::move(best));
  outcomes.push_back(of_best);
}

}  // namespace weft
