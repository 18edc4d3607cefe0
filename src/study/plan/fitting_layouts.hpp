// Where a plan does not fit in memory: other layouts of the same model on the same cluster that do.
#pragma once

#include "study/plan/plan_study.hpp"

namespace weft {

// For each of the nearest tp and pp the least change that fits: sequence parallelism, ZeRO, recomputation, smaller
// micro-batches, the same global batch. What the bound on memory does not drop is planned and simulated with the
// study's best policy that does not search (megatron-param where there is none). Fastest first.
FittingLayouts find_fitting_layouts(const PlanStudy& study, const Profile& profile);

}  // namespace weft
