#include "study/plan/mover_choices.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "cost/cost_model.hpp"

namespace weft {
namespace {

MoverFigures figures_of(Operation op, const CostModel& cost, const Mover& mover) {
  op.communication->mover = mover;
  return {in_words(mover), cost.alone(op), cost.interference(op).compute};
}

}  // namespace

std::vector<MovedTransfers> mover_choices(const PlanStudy& study, std::size_t policy, const Profile& profile) {
  const Plan& plan = study.policies[policy].plan();
  const Cluster cluster(study.inputs.cluster);
  const CostModel cost(plan.graph, cluster, profile);
  std::map<std::tuple<Collective, GroupKind, Scope, LevelSizes, std::int64_t, bool, Mover>, MovedTransfers> found;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    if (!op.communication) continue;
    const Communication& c = *op.communication;
    const std::vector<Mover> movers = cost.possible_movers(op);
    if (movers.size() < 2) continue;
    const bool beside = !plan.issues[id.index()].blocking;
    MovedTransfers& row = found[{c.collective, c.group, c.scope, c.levels, c.bytes.value, beside, c.mover}];
    if (row.transfers++ > 0) continue;
    row.collective = name_of(c.collective);
    row.group = name_of(c.group);
    if (c.scope != Scope::whole) row.group.append(" ").append(in_words(c.scope, c.levels));
    row.members = plan.graph.classes[op.rank_class].group(c.group).scoped(c.scope, c.levels).view.size;
    row.bytes = c.bytes;
    row.beside_compute = beside;
    row.chosen = figures_of(op, cost, c.mover);
    for (const Mover& mover : movers) {
      if (mover != c.mover) row.others.push_back(figures_of(op, cost, mover));
    }
  }
  std::vector<MovedTransfers> rows;
  for (auto& [key, row] : found) rows.push_back(std::move(row));
  std::ranges::stable_sort(rows, std::greater<>(), &MovedTransfers::bytes);
  return rows;
}

}  // namespace weft
