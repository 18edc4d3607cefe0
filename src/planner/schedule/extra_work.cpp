#include "planner/schedule/extra_work.hpp"

#include "planner/schedule/blocks.hpp"
#include "planner/schedule/weight_codes.hpp"

namespace weft {
bool is_extra_work(const Operation& op) {
  return op.role == Role::curvature || op.role == Role::inversion;
}

void fill_bubbles(Plan& plan) {
  bool any = false;
  for (const Operation& op : plan.graph.operations) any = any || is_extra_work(op);
  if (!any) return;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    ClassPlan& of_class = plan.classes[op.rank_class];
    Issue& issue = plan.issues[id];
    if (is_extra_work(op)) {
      issue.queue = extra_queue_of(of_class);
    } else if (op.role == Role::curvature_reduce) {
      issue.queue = communication_queue(of_class, "curvature");
      issue.blocking = false;
    } else if (of_class.queues[issue.queue].kind == QueueKind::extra) {
      issue.queue = kComputeQueue;  // an update would stand behind all that may wait
    }
  }
}

}  // namespace weft
