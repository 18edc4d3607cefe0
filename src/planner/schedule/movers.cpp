#include "planner/schedule/movers.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace weft {
namespace {

MoverRule rule_for(const MoverChoice& choice, const MoverKind& kind) {
  const auto own = std::find_if(choice.by_kind.begin(), choice.by_kind.end(),
                                [&](const auto& entry) { return entry.first == kind; });
  return own == choice.by_kind.end() ? choice.rule : own->second;
}

// Compute that is slowed down by s while the transfer takes t loses t s / (1 + s).
double lost_seconds(const Operation& transfer, const CostModel& cost) {
  const double slowdown = cost.interference(transfer).compute;
  return seconds(cost.transfer(transfer).alone()) * slowdown / (1 + slowdown);
}

Mover best_mover(Operation transfer, const CostModel& cost, MoverRule rule) {
  transfer.communication->mover = {};
  Mover best;
  if (rule == MoverRule::library) return best;
  double least = 0;
  for (const Mover& mover : cost.possible_movers(transfer)) {
    transfer.communication->mover = mover;
    double price = lost_seconds(transfer, cost);
    if (rule == MoverRule::in_balance) price += seconds(cost.transfer(transfer).alone());
    if (!mover.is_library() && price >= least) continue;
    least = price;
    best = mover;
  }
  return best;
}

// Returns what userbuffers move a transfer by; nothing where they do not. Layers with experts have them in attention
// only (partition/userbuffer_cuts.cpp).
std::optional<Mover> userbuffer_mover(const Plan& plan, const Operation& transfer, const CostModel& cost,
                                      const MoverChoice& choice) {
  if (!choice.userbuffers) return std::nullopt;
  const std::optional<LinearPass> pass = linear_pass(transfer);
  if (!pass || cost.possible_movers(transfer).size() < 2) return std::nullopt;
  const bool of_ffn = transfer.role == Role::ffn_gather || transfer.role == Role::ffn_reduce;
  if (of_ffn && plan.model.is_moe_layer(transfer.layer)) return std::nullopt;
  return mover_of(choice.userbuffers->of(*pass));
}

Mover mover_beside(const Plan& plan, const Operation& transfer, const CostModel& cost, const MoverChoice& choice) {
  if (const std::optional<Mover> mover = userbuffer_mover(plan, transfer, cost, choice)) return *mover;
  return best_mover(transfer, cost, rule_for(choice, mover_kind(transfer)));
}

}  // namespace

MoverKind mover_kind(const Operation& transfer) {
  const Communication& c = *transfer.communication;
  return {c.collective, c.group, c.scope, c.levels, transfer.role, transfer.phase};
}

std::vector<MoverKind> kinds_with_movers(const Plan& plan, const CostModel& cost) {
  std::vector<MoverKind> kinds;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    if (!op.communication || plan.issues[id.index()].blocking) continue;
    const MoverKind kind = mover_kind(op);
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
    if (cost.possible_movers(op).size() > 1) kinds.push_back(kind);
  }
  return kinds;
}

void choose_movers(Plan& plan, const CostModel& cost, const MoverChoice& choice) {
  std::map<std::int32_t, Mover> decided;  // by transfer
  for (const OpId id : plan.graph.operations.ids()) {
    Operation& op = plan.graph.operations[id];
    if (!op.communication) continue;
    Communication& c = *op.communication;
    const auto known = decided.find(c.transfer);
    if (c.transfer >= 0 && known != decided.end()) {
      c.mover = known->second;
      continue;
    }
    const bool is_beside = !plan.issues[id.index()].blocking;
    c.mover = is_beside ? mover_beside(plan, op, cost, choice) : Mover{};
    if (c.transfer >= 0) decided[c.transfer] = c.mover;
  }
}

}  // namespace weft
