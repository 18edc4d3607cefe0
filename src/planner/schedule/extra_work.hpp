// Work in bubbles: tasks of a step that may wait run on the queue `extra`, while compute waits for something else. So a
// pipeline's bubbles are filled first with what is released first, and compute goes on as soon as it can.
//
// Such a task has a window: a release, behind which it may run, and a deadline, before which it must have ended. The
// plan states both (Plan::windows) and the verifier proves them. Those of users' tasks are what the user says
// (planner/schedule/user_tasks.hpp); those of all other work follow from what it reads and who reads what it writes.
#pragma once

#include "plan/plan.hpp"

namespace weft {

// Returns whether an operation may wait: K-FAC's curvature and inversion, which the next step's preconditioning needs,
// users' tasks, and what Layout::may_wait names.
bool is_extra_work(const Operation& operation, const Layout& layout);
// Returns whether a plan with this layout has such work.
bool has_extra_work(const Layout& layout);

// Puts all such operations on the queue `extra`, in the order in which they are issued, and transfers between them on a
// queue of their own, and states their windows. To be called when blocks have their order and before values are placed.
void fill_bubbles(Plan& plan);

}  // namespace weft
