#include "planner/schedule/next_use.hpp"

#include <algorithm>

namespace weft {

std::vector<std::int32_t> next_use(const StepGraph& graph) {
  std::vector<std::int32_t> of_value(graph.values.size(), kNeverUsed),
      of_operation(graph.operations.size(), kNeverUsed);
  for (std::size_t i = graph.operations.size(); i-- > 0;) {
    if (!graph.operations[i].per_micro_batch) continue;
    for (const Read& read : graph.operations[i].reads) {
      if (read.distance == 1) of_value[read.value.index()] = static_cast<std::int32_t>(i);
    }
  }
  // Writers stand before their readers, so the way back meets readers first.
  for (std::size_t i = graph.operations.size(); i-- > 0;) {
    const Operation& op = graph.operations[i];
    if (op.per_micro_batch || op.role == Role::grad_norm || op.role == Role::norm_reduce) continue;
    for (const Write& write : op.writes) of_operation[i] = std::min(of_operation[i], of_value[write.value.index()]);
    for (const Read& read : op.reads) {
      std::int32_t& use = of_value[read.value.index()];
      if (read.distance == 0 && graph.value(read.value).kind != ValueKind::scalar) use = std::min(use, of_operation[i]);
    }
  }
  return of_operation;
}

}  // namespace weft
