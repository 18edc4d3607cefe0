#include "planner/schedule/weight_codes.hpp"

#include <algorithm>
#include <limits>

#include "graph/op_lists.hpp"

namespace weft {

bool codes_updated_weights(const Plan& plan, const Operation& op) {
  if (op.per_micro_batch || plan.layout.zero == 3) return false;
  return op.role == Role::param_encode || op.role == Role::param_decode;
}

std::map<OpId, double> turns_of_decodings(const Plan& plan, const std::vector<OpId>& operations,
                                          const std::vector<std::int32_t>& use) {
  constexpr std::ptrdiff_t kUpdatesBetween = 2;
  std::vector<std::int32_t> updates;
  for (const OpId id : operations) {
    if (plan.graph.op(id).role == Role::update) updates.push_back(use[id.index()]);
  }
  std::ranges::sort(updates);
  std::map<OpId, double> turns;
  for (const OpId id : operations) {
    if (plan.graph.op(id).role != Role::param_decode) continue;
    // Parameters that are updated together have the use of the first of them.
    const auto own = std::ranges::upper_bound(updates, use[id.index()]);
    const std::ptrdiff_t left = updates.end() - own;
    turns[id] = left < kUpdatesBetween ? std::numeric_limits<double>::max() : own[kUpdatesBetween - 1];
  }
  return turns;
}

void decode_beside(Plan& plan) {
  const OpLists writers = writers_by_value(plan.graph);
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    if (op.role != Role::param_decode || !codes_updated_weights(plan, op)) continue;
    const auto gathers = writers[read_of(op, Operand::encoded).index()];
    const bool is_waited_for = std::ranges::any_of(gathers, [&](OpId gather) { return plan.issues[gather].blocking; });
    if (!is_waited_for) plan.issues[id].queue = extra_queue_of(plan.classes[op.rank_class]);
  }
}

QueueId extra_queue_of(ClassPlan& plan) {
  for (const QueueId q : plan.queues.ids()) {
    if (plan.queues[q].kind == QueueKind::extra) return q;
  }
  plan.queues.push_back({"extra", QueueKind::extra});
  return plan.queues.last_id();
}

}  // namespace weft
