#include "planner/schedule/extra_work.hpp"

#include <algorithm>

#include "plan/task_windows.hpp"
#include "planner/schedule/blocks.hpp"
#include "planner/schedule/weight_codes.hpp"

namespace weft {
bool is_extra_work(const Operation& op, const Layout& layout) {
  if (op.is_transfer()) return false;
  if (op.role == Role::curvature || op.role == Role::inversion || op.role == Role::task) return true;
  return std::ranges::any_of(layout.may_wait, [&](WorkThatWaits work) {
    switch (work) {
      case WorkThatWaits::weight_grads:
        return op.phase == Phase::weight_grad && op.per_micro_batch;
      case WorkThatWaits::updates:
        return op.role == Role::update;
      case WorkThatWaits::encodings:
        return op.role == Role::grad_encode;
    }
    return false;
  });
}

bool has_extra_work(const Layout& layout) {
  return layout.kfac_interval > 0 || !layout.tasks.empty() || !layout.may_wait.empty();
}

void fill_bubbles(Plan& plan) {
  const auto is_extra = [&](const Operation& op) { return is_extra_work(op, plan.layout); };
  if (std::ranges::none_of(plan.graph.operations, is_extra)) return;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    ClassPlan& of_class = plan.classes[op.rank_class];
    Issue& issue = plan.issues[id];
    if (is_extra(op)) {
      issue.queue = extra_queue_of(of_class);
    } else if (op.role == Role::curvature_reduce) {
      issue.queue = communication_queue(of_class, "curvature");
      issue.blocking = false;
    } else if (of_class.queues[issue.queue].kind == QueueKind::extra) {
      issue.queue = kComputeQueue;  // an update would stand behind all that may wait
    }
  }
  const std::vector<TaskWindow> windows = windows_of_extra_work(plan);
  plan.windows.insert(plan.windows.end(), windows.begin(), windows.end());
}

}  // namespace weft
