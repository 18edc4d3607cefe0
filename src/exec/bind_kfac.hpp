// K-FAC's operations (graph/build/kfac.cpp) in a rank's memory.
#pragma once

#include <deque>
#include <functional>

#include "exec/bound_operation.hpp"
#include "exec/parameter_state.hpp"
#include "exec/rank_view.hpp"
#include "kernels/kernels.hpp"

namespace weft {

// What a run has of the factors of curvature when it begins, and whom it tells of them.
struct CurvatureState {
  std::int64_t first_step = 0;
  std::deque<bool> known = {};  // by factor of ParameterStates: it is there when the first step begins
  // It is told of every factor in every step: the average is that of this step until the next one has its turn.
  std::function<void(std::int64_t step, std::size_t factor)> on_averaged = {};
};

bool is_of_kfac(const Operation& operation);
// `into`: whether curvature begins the sum of its step or adds to it.
BoundOperation bind_kfac(const RankView& view, const ParameterStates& parameters, const KfacSettings& settings,
                         CurvatureState& curvature, const Operation& operation, MicroBatch micro_batch, Into into);

}  // namespace weft
