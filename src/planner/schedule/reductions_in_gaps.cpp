#include "planner/schedule/reductions_in_gaps.hpp"

#include <algorithm>
#include <map>

#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"

namespace weft {
namespace {

// One class's last backward pass, as long as its operations take alone: compute in its order, every queue in its own.
class LastBackward {
 public:
  LastBackward(const Plan& plan, const CostModel& cost, const OpLists& writers, std::size_t rank_class)
      : plan_(plan),
        cost_(cost),
        writers_(writers),
        class_(plan.classes[rank_class]),
        start_(plan.graph.operations.size(), -1),
        end_(plan.graph.operations.size(), 0) {
    const auto last = std::find_if(class_.order.rbegin(), class_.order.rend(),
                                   [](const IssueSlot& slot) { return slot.micro_batch.valid(); });
    if (last == class_.order.rend()) return;
    IdVector<QueueId, double> free(class_.queues.size(), 0);
    double chain = 0;
    for (const OpId id : block_of(class_, *last).operations) {
      const Issue& issue = plan.issues[id];
      double& available = issue.blocking || issue.queue == kComputeQueue ? chain : free[issue.queue];
      start_[id.index()] = std::max(available, ready(id));
      available = end_[id.index()] = start_[id.index()] + length(id);
      if (is_exchange(id)) exchanges_.push_back(id);
    }
    std::sort(exchanges_.begin(), exchanges_.end(),
              [&](OpId a, OpId b) { return start_[a.index()] < start_[b.index()]; });
  }

  void place(std::vector<Wait>& waits) const {
    std::map<QueueId, std::vector<OpId>> queues;
    for (const OpId id : block_of(class_, BlockKind::update).operations) {
      if (is_reduction(id)) queues[plan_.issues[id].queue].push_back(id);
    }
    GapProblem problem;
    for (const OpId id : exchanges_) problem.busy.push_back({start_[id.index()], end_[id.index()]});
    for (const auto& [number, queue] : queues) {
      problem.pieces.clear();
      for (const OpId id : queue) problem.pieces.push_back({ready(id), length(id)});
      const std::vector<std::int32_t> behind = fit_into_gaps(problem);
      for (std::size_t i = 0; i < queue.size(); ++i) {
        if (behind[i] >= 0) waits.push_back({queue[i], exchanges_[behind[i]], 0});
      }
    }
  }

 private:
  double length(OpId id) const { return static_cast<double>(cost_.alone(plan_.graph.op(id)).value); }

  // What it reads of this pass; the rest was there before.
  double ready(OpId id) const {
    const StepGraph& graph = plan_.graph;
    const Operation& op = graph.op(id);
    double latest = 0;
    for (const Read& read : op.reads) {
      if (read.distance > 0) continue;
      const Slice slice = read_slice_of(graph, op, read.value);
      for (const OpId writer : writers_[read.value.index()]) {
        if (start_[writer.index()] < 0 || !overlap(slice, slice_of(graph, graph.op(writer), read.value))) continue;
        latest = std::max(latest, end_[writer.index()]);
      }
    }
    return latest;
  }

  bool is_exchange(OpId id) const {
    const Operation& op = plan_.graph.op(id);
    return op.communication && op.communication->group == GroupKind::ep && !plan_.issues[id].blocking;
  }

  // Of gradients, beside compute, and over links that all-to-alls use.
  bool is_reduction(OpId id) const {
    const Operation& op = plan_.graph.op(id);
    if (!op.communication || op.role != Role::grad_reduce || plan_.issues[id].blocking) return false;
    if (exchanges_.empty()) return false;
    const TransferCost own = cost_.transfer(op), other = cost_.transfer(plan_.graph.op(exchanges_.front()));
    const auto slowest = std::max_element(own.work.begin(), own.work.end(),
                                          [](const LinkWork& a, const LinkWork& b) { return a.seconds < b.seconds; });
    return slowest != own.work.end() && std::any_of(other.work.begin(), other.work.end(), [&](const LinkWork& w) {
             return w.resource == slowest->resource && w.seconds > 0;
           });
  }

  const Plan& plan_;
  const CostModel& cost_;
  const OpLists& writers_;
  const ClassPlan& class_;
  std::vector<double> start_, end_;  // by operation; start -1: not of this pass
  std::vector<OpId> exchanges_;      // by their start
};

}  // namespace

std::vector<std::int32_t> fit_into_gaps(const GapProblem& problem) {
  const std::vector<GapProblem::Busy>& busy = problem.busy;
  double longest = 0;
  for (std::size_t i = 1; i < busy.size(); ++i) longest = std::max(longest, busy[i].begin - busy[i - 1].end);
  std::vector<std::int32_t> behind;
  double free = 0;
  for (const GapProblem::Piece& piece : problem.pieces) {
    const double earliest = std::max(free, piece.ready);
    // Gap i lies before stretch i; the one behind the last has no end.
    const auto begin = [&](std::size_t gap) { return gap == 0 ? earliest : std::max(earliest, busy[gap - 1].end); };
    const double needed = piece.length > longest ? 0 : piece.length;
    std::size_t gap = 0;
    while (gap < busy.size() && (begin(gap) >= busy[gap].begin || begin(gap) + needed > busy[gap].begin)) ++gap;
    behind.push_back(begin(gap) > earliest ? static_cast<std::int32_t>(gap) - 1 : -1);
    free = begin(gap) + piece.length;
  }
  return behind;
}

void reduce_in_gaps(Plan& plan, const CostModel& cost) {
  const OpLists writers = writers_by_value(plan.graph);
  for (std::size_t c = 0; c < plan.classes.size(); ++c) LastBackward(plan, cost, writers, c).place(plan.waits);
}

}  // namespace weft
