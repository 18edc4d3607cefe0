// The windows that a plan must keep: those of a user's tasks, as the layout states them, and those of other work on the
// queue `extra`, whose release and deadline are who writes what it reads and who reads what it writes.
#pragma once

#include <vector>

#include "graph/step_graph.hpp"
#include "plan/plan.hpp"

namespace weft {

// `model` is the graph of the plan's model, cluster and layout. A task has as many windows as its moments have
// operations, since a plan may cut operations into parts. Whoever overwrites the weights whose norm a task computes is
// among its deadlines. Throws Error as find_moments does.
std::vector<TaskWindow> windows_of_tasks(const Plan& plan, const StepGraph& model);

// Returns a window of every operation on a queue `extra` but users' tasks: the operation issued last of those of the
// same step whose results it reads, and the one issued first of those that read its own, in this step or the next.
std::vector<TaskWindow> windows_of_extra_work(const Plan& plan);

}  // namespace weft
