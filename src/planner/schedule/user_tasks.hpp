// Places the tasks that a user adds to a step (graph/extra_task.hpp) in the issue order, and makes the plan keep their
// windows: a task waits for its release, and its deadline waits for the task.
#pragma once

#include "plan/plan.hpp"

namespace weft {

// Gives every task a place right behind its release: a block of its own where it runs once a step, else a place in the
// block of its release. It runs there in line, on the compute queue; fill_bubbles may move it to `extra` later. `model`
// is the graph of the plan's model. Throws Error where the deadline is issued before the release, as may follow from
// the pipeline's schedule. To be called when blocks have their order and before values are placed.
void place_tasks(Plan& plan, const StepGraph& model);

}  // namespace weft
