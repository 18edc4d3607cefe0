#include "exec/forward_part.hpp"

#include "base/error.hpp"

namespace weft {

std::vector<bool> forward_part(const Plan& plan, const Unfolded& unfolded) {
  const std::vector<Instance>& instances = unfolded.instances();
  std::vector<bool> needed(instances.size(), false);
  std::vector<std::size_t> open;
  const auto need = [&](std::size_t i) {
    if (needed[i]) return;
    needed[i] = true;
    open.push_back(i);
  };
  for (std::size_t i = 0; i < instances.size(); ++i) {
    const Operation& op = plan.graph.op(instances[i].operation);
    if (op.role == Role::loss && op.phase == Phase::forward) need(i);
  }
  WEFT_CHECK(!open.empty());
  while (!open.empty()) {
    const std::size_t i = open.back();
    open.pop_back();
    for (const Edge& edge : unfolded.waits_for(i)) {
      const Operation& from = plan.graph.op(instances[static_cast<std::size_t>(edge.from)].operation);
      const bool updates = from.phase == Phase::optimizer && !from.is_transfer();
      if (edge.kind == EdgeKind::data && !updates) need(static_cast<std::size_t>(edge.from));
    }
    if (instances[i].joint < 0) continue;
    for (const std::int32_t member : unfolded.members(static_cast<std::size_t>(instances[i].joint))) {
      need(static_cast<std::size_t>(member));
    }
  }
  return needed;
}

}  // namespace weft
