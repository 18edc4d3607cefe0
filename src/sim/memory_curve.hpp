// Computes memory over time for traces and pages. It follows every value of every micro-batch, which takes time, so it
// is computed only where it is shown.
#pragma once

#include "plan/plan.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// Returns Timeline::memory, by rank: bytes that hold something, each from the start of its writer to the end of its
// last reader, over what persists. Covers the steady window and the iteration after it. `timeline` must be the plan's,
// as simulate_plan made it.
std::vector<std::vector<MemorySample>> memory_curve(const Plan& plan, const Timeline& timeline);

}  // namespace weft
