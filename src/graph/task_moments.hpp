// Finds the operations that the release and the deadline of a user's task name (graph/extra_task.hpp).
#pragma once

#include <string>
#include <vector>

#include "graph/step_graph.hpp"

namespace weft {

// Returns the operations of a class that reports call by this name; none where the class has no such operation.
std::vector<OpId> operations_named(const StepGraph& graph, ClassId rank_class, const std::string& name);

// The release and the deadline of a task on one rank class, in operations of the graph of the model.
struct TaskMoments {
  std::vector<OpId> release;
  std::vector<OpId> deadline;
};
// `computes` is the task in the graph. Throws Error, which names the task, the key and the operation, where its class
// lacks an operation, or that cannot bound the task.
TaskMoments find_moments(const StepGraph& graph, const ExtraTask& task, const Operation& computes);

}  // namespace weft
