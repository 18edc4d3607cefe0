// Work in bubbles: tasks of a step that may wait run on the queue `extra`, while compute waits for something else. So a
// pipeline's bubbles are filled first with what is released first, and compute goes on as soon as it can.
//
// Such a task is released by what it reads. Its deadline is whoever reads what it writes, or the next user of memory
// that it reads. Both are dependencies and waits of the plan, which the verifier proves like any others.
#pragma once

#include "plan/plan.hpp"

namespace weft {

// Returns whether an operation may wait: K-FAC's curvature and inversion, which the next step's preconditioning needs.
bool is_extra_work(const Operation& operation);

// Puts all such operations on the queue `extra`, in the order in which they are issued, and transfers between them on a
// queue of their own. To be called when blocks have their order and before values are placed.
void fill_bubbles(Plan& plan);

}  // namespace weft
