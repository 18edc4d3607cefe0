// Finds other layouts of the same model on the same cluster that fit, where a plan does not fit in memory.
#pragma once

#include "study/plan/plan_study.hpp"

namespace weft {

// Finds, for each of the nearest tp and pp, the least change that fits: sequence parallelism, ZeRO, recomputation (of
// as few layers as fit) or smaller micro-batches, with the same global batch. Layouts that the bound on memory admits
// are planned and simulated with the study's best policy that does not search (megatron-param where there is none).
// Fastest first.
FittingLayouts find_fitting_layouts(const PlanStudy& study, const Profile& profile);

}  // namespace weft
