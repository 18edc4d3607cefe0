#include "plan/task_windows.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"
#include "graph/task_moments.hpp"
#include "plan/memory/lifetimes.hpp"

namespace weft {
namespace {

const ExtraTask& user_task_of(const Plan& plan, const Operation& op) {
  const auto found = std::ranges::find(plan.layout.tasks, op.task_name, &ExtraTask::name);
  if (found == plan.layout.tasks.end()) fail("'{}' is no task of the plan's layout", op.task_name);
  return *found;
}

// By operation of the model: what carries it out.
using CarriedOutBy = std::map<OpId, std::vector<OpId>>;

std::vector<OpId> in_plan(const CarriedOutBy& carried_out, const std::vector<OpId>& of_model) {
  std::vector<OpId> result;
  for (const OpId id : of_model) {
    const auto found = carried_out.find(id);
    if (found == carried_out.end()) continue;
    for (const OpId op : found->second) {
      if (std::ranges::find(result, op) == result.end()) result.push_back(op);
    }
  }
  return result;
}

// By operation: its first and its last place in the issue order of its class.
struct IssuePlaces {
  explicit IssuePlaces(const Plan& plan) : first(plan.graph.operations.size(), INT32_MAX), last(first.size(), -1) {
    for (const ClassPlan& c : plan.classes) {
      std::int32_t place = 0;
      for (const IssueSlot& slot : c.order) {
        for (const OpId id : operations_of(c, slot)) {
          first[id] = std::min(first[id], place);
          last[id] = place++;
        }
      }
    }
  }
  IdVector<OpId, std::int32_t> first, last;
};

}  // namespace

std::vector<TaskWindow> windows_of_tasks(const Plan& plan, const StepGraph& model) {
  std::vector<TaskWindow> windows;
  if (plan.layout.tasks.empty()) return windows;
  CarriedOutBy carried_out;
  for (const OpId id : plan.graph.operations.ids()) {
    for (const Origin& origin : plan.graph.op(id).origins) carried_out[origin.operation].push_back(id);
  }
  const OpLists writers = writers_by_value(plan.graph);
  const std::vector<ValueId> storage = find_storage(plan);
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    if (op.role != Role::task) continue;
    const ExtraTask& task = user_task_of(plan, op);
    const TaskMoments moments = find_moments(model, task, op);
    const std::vector<OpId> releases = in_plan(carried_out, moments.release),
                            deadlines = in_plan(carried_out, moments.deadline);
    for (std::size_t i = 0; i < std::max(releases.size(), deadlines.size()); ++i) {
      windows.push_back({id, i < releases.size() ? releases[i] : OpId{}, i < deadlines.size() ? deadlines[i] : OpId{},
                         i < deadlines.size() ? task.deadline_steps : 0});
    }
    for (const Read& read : op.reads) {
      for (const ValueId value : plan.graph.values.ids()) {  // ZeRO 1 updates a shard where the whole lies
        if (storage[value.index()] != storage[read.value.index()]) continue;
        for (const OpId writer : writers[value.index()]) windows.push_back({id, OpId{}, writer, 0});
      }
    }
  }
  return windows;
}

std::vector<TaskWindow> windows_of_extra_work(const Plan& plan) {
  std::vector<TaskWindow> windows;
  const StepGraph& graph = plan.graph;
  const OpLists writers = writers_by_value(graph), readers = readers_by_value(graph);
  const IssuePlaces places(plan);
  for (const OpId id : graph.operations.ids()) {
    const Operation& op = graph.op(id);
    const Queue& queue = plan.classes[op.rank_class].queues[plan.issues[id].queue];
    if (queue.kind != QueueKind::extra || op.role == Role::task) continue;
    TaskWindow window{id, {}, {}, 0};
    for (const Read& read : op.reads) {
      if (read.distance != 0) continue;
      for (const OpId writer : writers[read.value.index()]) {
        if (writer == id ||
            !overlap(read_slice_of(graph, op, read.value), slice_of(graph, graph.op(writer), read.value)))
          continue;
        if (!window.release.valid() || places.last[writer] > places.last[window.release]) window.release = writer;
      }
    }
    const auto reads_of = [&](OpId reader, ValueId value) {
      return overlap(slice_of(graph, op, value), read_slice_of(graph, graph.op(reader), value));
    };
    // What reads it in this step is before what does in the next one.
    std::tuple<std::int32_t, std::int32_t> earliest{2, 0};
    for (const Write& write : op.writes) {
      for (const OpId reader : readers[write.value.index()]) {
        for (const Read& read : graph.op(reader).reads) {
          if (read.value != write.value || reader == id || !reads_of(reader, write.value)) continue;
          const std::tuple moment{read.distance, places.first[reader]};
          if (moment >= earliest) continue;
          earliest = moment;
          window.deadline = reader;
          window.steps = read.distance;
        }
      }
    }
    if (window.release.valid() || window.deadline.valid()) windows.push_back(window);
  }
  return windows;
}

}  // namespace weft
