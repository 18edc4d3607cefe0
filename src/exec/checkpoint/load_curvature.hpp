// K-FAC's curvature out of a checkpoint, which keeps the averages of its factors: inverses follow from them.
#pragma once

#include <deque>

#include "exec/checkpoint/checkpoint_reader.hpp"
#include "kernels/kernels.hpp"

namespace weft {

// Sets averages and inverses of a rank's factors. Returns, by factor, whether the checkpoint knows it: one that no step
// has computed yet is stored as zeros. Throws Error naming a factor that has no inverse.
std::deque<bool> load_curvature(const CheckpointReader& checkpoint, const RankView& view,
                                const ParameterStates& parameters, const KfacSettings& settings, Kernels& kernels);

}  // namespace weft
