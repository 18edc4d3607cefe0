#include "planner/schedule/overlap_linear.hpp"

namespace weft {

bool is_of_linear_backward(const Operation& op) {
  if (!op.communication || !op.per_micro_batch || op.communication->group != GroupKind::tp) return false;
  const bool enters_region =
      op.role == Role::attention_gather || op.role == Role::ffn_gather || op.role == Role::head_gather;
  return enters_region && (op.phase == Phase::input_grad || op.phase == Phase::weight_grad);
}

void overlap_linear_backward(Plan& plan) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    if (is_of_linear_backward(plan.graph.operations[i])) plan.issues[i].blocking = false;
  }
}

void gather_again_in_turn(Plan& plan) {
  for (const ClassPlan& c : plan.classes) {
    for (const IssueBlock& block : c.blocks) {
      OpId computed_before;
      for (const OpId id : block.operations) {
        const Operation& op = plan.graph.op(id);
        if (!op.communication) computed_before = id;
        const bool gathers_again = is_of_linear_backward(op) && op.phase == Phase::weight_grad;
        if (gathers_again && computed_before.valid()) plan.waits.push_back({id, computed_before});
      }
    }
  }
}

}  // namespace weft
