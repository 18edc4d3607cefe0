// K-FAC's operations (graph/build/kfac.cpp) in a rank's memory.
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/parameter_state.hpp"
#include "exec/rank_view.hpp"
#include "kernels/kernels.hpp"

namespace weft {

bool is_of_kfac(const Operation& operation);
// `into`: whether curvature begins the sum of its step or adds to it.
BoundOperation bind_kfac(const RankView& view, const ParameterStates& parameters, const KfacSettings& settings,
                         const Operation& operation, MicroBatch micro_batch, Into into);

}  // namespace weft
