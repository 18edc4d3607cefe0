#include "graph/task_moments.hpp"

#include "base/error.hpp"

namespace weft {
namespace {

void check_moment(const StepGraph& graph, const ExtraTask& task, const Operation& computes, const char* key,
                  const std::string& name, const std::vector<OpId>& found) {
  const std::string& where = graph.classes[computes.rank_class].name;
  if (found.empty()) {
    std::string example;
    for (const Operation& op : graph.operations) {
      if (op.rank_class == computes.rank_class && !op.is_transfer() && example.empty()) example = describe(op);
    }
    fail(
        "--extra: task '{}': key '{}': {} has no operation '{}'; one that it has is '{}' (plan.json of --out lists "
        "all)",
        task.name, key, where, name, example);
  }
  for (const OpId id : found) {
    if (graph.op(id).role == Role::task) {
      fail("--extra: task '{}': key '{}': '{}' is a task itself; moments are operations of the model", task.name, key,
           name);
    }
    if (std::string_view(key) == "release" && computes.per_micro_batch && !graph.op(id).per_micro_batch) {
      fail("--extra: task '{}': key 'release': '{}' runs once a step, and the task in every micro-batch", task.name,
           name);
    }
  }
}

}  // namespace

std::vector<OpId> operations_named(const StepGraph& graph, ClassId rank_class, const std::string& name) {
  std::vector<OpId> found;
  for (const OpId id : graph.operations.ids()) {
    const Operation& op = graph.op(id);
    if (op.rank_class == rank_class && describe(op) == name) found.push_back(id);
  }
  return found;
}

TaskMoments find_moments(const StepGraph& graph, const ExtraTask& task, const Operation& computes) {
  TaskMoments moments;
  const auto find = [&](const char* key, const std::string& name) -> std::vector<OpId> {
    if (name.empty()) return {};
    std::vector<OpId> found = operations_named(graph, computes.rank_class, name);
    check_moment(graph, task, computes, key, name, found);
    return found;
  };
  moments.release = find("release", task.release);
  moments.deadline = find("deadline", task.deadline);
  return moments;
}

}  // namespace weft
