// The memory side of a pipeline's order: what its passes hold, and how much a stage has for them beside what persists.
// An estimate, made before values have places: whether a plan fits is seen when they have.
#pragma once

#include "graph/pipeline_run.hpp"
#include "plan/plan.hpp"

namespace weft {

// Sets `bytes` and `room` of a problem that has its shape. Of ranks of a stage that differ, those with the most to hold
// and the least room count. A stage uses `percent` of its room.
void estimate_bytes(const Plan& plan, std::int64_t percent, PipelineProblem& problem);

}  // namespace weft
