// Predicts the timeline of a plan.
#pragma once

#include "cost/cost_model.hpp"
#include "plan/whole_plan.hpp"
#include "sim/engine.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// The plan must be free of deadlock (verify_plan). `cost` must be for the plan's graph. What repeats stays folded
// (timeline/folded_spans.hpp), and memory over time is left out: see memory_curve.hpp.
Timeline simulate_plan(const WholePlan& whole, const CostModel& cost, const SimOptions& options = {});

// Returns Timeline::period_ns alone, in less time.
double simulated_period_ns(const WholePlan& whole, const CostModel& cost);

// Returns the simulator's input for a plan, for tests and benchmarks.
SimProblem sim_problem(const WholePlan& whole, const CostModel& cost);

}  // namespace weft
