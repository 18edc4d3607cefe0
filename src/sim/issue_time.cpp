#include "sim/issue_time.hpp"

#include <algorithm>

namespace weft {

void add_issue_time(const Plan& plan, const CostModel& cost, const std::vector<std::int32_t>& cost_of,
                    std::vector<SimCost>& costs) {
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    for (const IssueBlock& block : plan.classes[c].blocks) {
      Nanos host, device;
      for (const OpId id : block.operations) {
        const Operation& op = plan.graph.op(id);
        if (!op.per_micro_batch) continue;
        const Issue& issue = plan.issues[id];
        if (issue.blocking && op.communication->transfer >= 0) {
          host = cost.resync(op.rank_class);
          device = Nanos{0};
          continue;
        }
        host += cost.launch(op);
        if (issue.queue != kComputeQueue && !issue.blocking) continue;
        SimCost& own = costs[cost_of[id.index()]];
        const Nanos waits = std::max(Nanos{0}, host - device);
        device += waits + own.fixed + own.moving;
        own.fixed += waits;
      }
    }
  }
}

}  // namespace weft
