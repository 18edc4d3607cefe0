#include "planner/schedule/cyclic_operation.hpp"

#include <algorithm>

namespace weft {
namespace {

std::int32_t slowest_link(const CostModel& cost, const Operation& op) {
  const TransferCost transfer = cost.transfer(op);
  const auto slowest = std::max_element(transfer.work.begin(), transfer.work.end(),
                                        [](const LinkWork& a, const LinkWork& b) { return a.seconds < b.seconds; });
  return slowest == transfer.work.end() ? -1 : slowest->resource.value;
}

}  // namespace

CyclicOperation cyclic_operation(const Plan& plan, const CostModel& cost, OpId id) {
  const Operation& op = plan.graph.op(id);
  CyclicOperation result;
  result.ns = static_cast<double>(cost.alone(op).value);
  if (!op.communication) return result;
  if (!plan.issues[id].blocking) result.queue = plan.issues[id].queue.value;
  result.link = slowest_link(cost, op);
  result.fixed_order = op.communication->transfer >= 0;
  return result;
}

}  // namespace weft
