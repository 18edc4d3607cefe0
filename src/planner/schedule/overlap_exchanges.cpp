#include "planner/schedule/overlap_exchanges.hpp"

#include <algorithm>

namespace weft {
namespace {

bool is_of_exchange(const Operation& op) {
  return op.per_micro_batch && (op.role == Role::node_reduce || op.role == Role::grad_encode ||
                                op.role == Role::grad_exchange || op.role == Role::grad_merge);
}

// How many units later an operation runs than the encoding (or the plain sums inside nodes) of its unit's gradients.
std::size_t lag_of(const Operation& op) {
  return static_cast<std::size_t>(op.part) + (op.role == Role::grad_merge ? 1 : 0);
}

void delay_sums(Plan& plan, IssueBlock& block) {
  const auto op_of = [&](OpId id) -> const Operation& { return plan.graph.op(id); };
  struct Unit {
    std::int32_t layer = -1;
    std::size_t encoded_at = 0;              // position of the last operation that is not delayed
    std::vector<std::vector<OpId>> delayed;  // by lag - 1
  };
  std::vector<Unit> units;
  for (std::size_t i = 0; i < block.operations.size(); ++i) {
    const OpId id = block.operations[i];
    const Operation& op = op_of(id);
    if (!is_of_exchange(op)) continue;
    if (units.empty() || units.back().layer != op.layer) units.push_back({op.layer, i, {}});
    const std::size_t lag = lag_of(op);
    if (lag == 0) {
      units.back().encoded_at = i;
    } else {
      if (units.back().delayed.size() < lag) units.back().delayed.resize(lag);
      units.back().delayed[lag - 1].push_back(id);
    }
    if (op.is_transfer()) plan.issues[id.index()].blocking = false;
  }
  if (units.empty()) return;
  std::vector<std::vector<OpId>> behind(block.operations.size());  // by position
  std::size_t longest = 0;
  for (const Unit& unit : units) longest = std::max(longest, unit.delayed.size());
  for (std::size_t turn = 1; turn < units.size() + longest; ++turn) {
    const std::size_t place = turn < units.size() ? units[turn].encoded_at : block.operations.size() - 1;
    for (std::size_t lag = 1; lag <= std::min(turn, longest); ++lag) {  // what still has to travel comes first
      if (turn - lag >= units.size() || units[turn - lag].delayed.size() < lag) continue;
      const std::vector<OpId>& delayed = units[turn - lag].delayed[lag - 1];
      behind[place].insert(behind[place].end(), delayed.begin(), delayed.end());
    }
  }
  std::vector<OpId> operations;
  for (std::size_t i = 0; i < block.operations.size(); ++i) {
    const Operation& op = op_of(block.operations[i]);
    if (!is_of_exchange(op) || lag_of(op) == 0) operations.push_back(block.operations[i]);
    operations.insert(operations.end(), behind[i].begin(), behind[i].end());
  }
  block.operations = std::move(operations);
}

}  // namespace

void overlap_exchanges(Plan& plan) {
  for (ClassPlan& c : plan.classes) {
    for (IssueBlock& block : c.blocks) delay_sums(plan, block);
  }
}

}  // namespace weft
