// Tasks that users add to a step (graph/extra_task.hpp), bound to a rank's memory.
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/parameter_state.hpp"
#include "exec/rank_view.hpp"

namespace weft {

// A task of a given duration keeps its processor busy for as long: it stands for work that this program does not know.
// A norm is computed of the weights that the rank holds.
BoundOperation bind_task(const RankView& view, const ParameterStates& parameters, const Operation& op);

}  // namespace weft
