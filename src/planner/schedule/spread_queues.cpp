#include "planner/schedule/spread_queues.hpp"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "planner/schedule/blocks.hpp"

namespace weft {
namespace {

bool may_move(const Plan& plan, OpId id) {
  const Operation& op = plan.graph.op(id);
  return op.communication && !plan.issues[id].blocking && op.communication->transfer < 0 &&
         op.communication->collective != Collective::send_recv;
}

// Gives the transfers of one class their queues.
class Spread {
 public:
  Spread(Plan& plan, ClassPlan& of, int queues) : plan_(plan), of_(of), queues_(queues) {
    issued_.assign(of.queues.size(), 0);
    seen_.assign(plan.graph.operations.size(), false);
  }

  void issue(OpId id) {
    if (seen_[id] || !may_move(plan_, id)) return;
    seen_[id] = true;
    QueueId& queue = plan_.issues[id].queue;
    const std::optional<QueueId> shared = shared_queue(id);
    queue = shared ? *shared : next_queue(queue);
    for (const Write& write : plan_.graph.op(id).writes) queue_of_[write.value] = queue;
  }

 private:
  // Those that add to one sum do so one after the other.
  std::optional<QueueId> shared_queue(OpId id) const {
    for (const Write& write : plan_.graph.op(id).writes) {
      if (const auto found = queue_of_.find(write.value); found != queue_of_.end()) return found->second;
    }
    return std::nullopt;
  }
  QueueId next_queue(QueueId own) {
    const int turn = issued_[own]++ % queues_;
    return turn == 0 ? own : communication_queue(of_, fmt::format("{} {}", of_.queues[own].name, turn + 1));
  }

  Plan& plan_;
  ClassPlan& of_;
  int queues_;
  IdVector<QueueId, int> issued_;  // to the queue that a transfer had
  IdVector<OpId, bool> seen_;
  std::map<ValueId, QueueId> queue_of_;  // by value that a transfer writes
};

}  // namespace

void spread_over_queues(Plan& plan, int queues) {
  for (ClassPlan& of : plan.classes) {
    Spread spread(plan, of, queues);
    for (const IssueSlot& slot : of.order) {
      for (const OpId id : operations_of(of, slot)) spread.issue(id);
    }
  }
}

}  // namespace weft
