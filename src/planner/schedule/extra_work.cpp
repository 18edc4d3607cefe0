#include "planner/schedule/extra_work.hpp"

#include <algorithm>

#include "graph/op_lists.hpp"
#include "plan/memory/lifetimes.hpp"
#include "plan/task_windows.hpp"
#include "planner/schedule/blocks.hpp"
#include "planner/schedule/weight_codes.hpp"

namespace weft {
namespace {

// Backward reads the weights that its forward read. An update follows the weight's gradient, which follows backward
// where both are computed in turn; where the gradient runs in bubbles, it may be there first.
void update_behind_backward(Plan& plan) {
  const StepGraph& graph = plan.graph;
  const OpLists readers = readers_by_value(graph);
  const std::vector<ValueId> storage = find_storage(plan);  // ZeRO 1 updates a shard where the whole lies
  std::vector<std::vector<OpId>> readers_of_storage(storage.size());
  for (const ValueId value : graph.values.ids()) {
    for (const OpId reader : readers[value.index()]) {
      readers_of_storage[storage[value.index()].index()].push_back(reader);
    }
  }
  for (const OpId id : graph.operations.ids()) {
    if (graph.op(id).per_micro_batch) continue;
    for (const Write& write : graph.op(id).writes) {
      if (graph.value(write.value).kind != ValueKind::parameter) continue;
      for (const OpId reader : readers_of_storage[storage[write.value.index()].index()]) {
        const Operation& op = graph.op(reader);
        if (op.per_micro_batch && op.phase != Phase::forward) plan.waits.push_back({id, reader, 0});
      }
    }
  }
}

}  // namespace

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
  if (std::ranges::find(plan.layout.may_wait, WorkThatWaits::weight_grads) != plan.layout.may_wait.end()) {
    update_behind_backward(plan);
  }
  const std::vector<TaskWindow> windows = windows_of_extra_work(plan);
  plan.windows.insert(plan.windows.end(), windows.begin(), windows.end());
}

}  // namespace weft
