// Plan -> Timeline (predicted).
#pragma once

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"
#include "plan/unfold.hpp"
#include "sim/engine.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// The plan must be free of deadlock (verify_plan). `cost` must be for plan.graph. What repeats stays folded
// (timeline/folded_spans.hpp), and memory over time is left out: see memory_curve.hpp.
Timeline simulate_plan(const Plan& plan, const CostModel& cost, const SimOptions& options = {});
// The same with the plan already unfolded.
Timeline simulate_plan(const Plan& plan, const Unfolded& unfolded, const CostModel& cost,
                       const SimOptions& options = {});

// Timeline::period_ns alone, in less time.
double simulated_period_ns(const Plan& plan, const Unfolded& unfolded, const CostModel& cost);

// The simulator's input for a plan, for tests and benchmarks.
SimProblem sim_problem(const Plan& plan, const Unfolded& unfolded, const CostModel& cost);

}  // namespace weft
