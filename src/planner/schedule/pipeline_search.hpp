// A pipeline's order by search: how long each stage's passes and messages take says when weight gradients run, within
// the passes whose activations a stage may hold.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/pipeline_run.hpp"
#include "plan/plan.hpp"

namespace weft {

// What a policy decides of the order of a pipeline. With neither, it is that of the layout's schedule.
struct PipelineChoice {
  std::optional<PipelineSchedule> named = {};
  std::int64_t most_held = 0;  // above 0: the order is searched for, and a stage holds at most so many passes
  // What a searched order may hold of the memory that a stage is estimated to have for it; 0: memory does not count.
  std::int64_t room_percent = 0;
  friend bool operator==(const PipelineChoice&, const PipelineChoice&) = default;
};

// Of a plan with queues and blocking: what a stage computes and waits for on the spot in each pass. Where ranks of a
// stage differ, the slowest counts.
PipelineProblem pipeline_problem(const Plan& plan, const CostModel& cost);

// Returns the order with the shortest step among those of the named schedules that hold no more, those that fill the
// stages' waiting times in several ways, and what small changes make of the best. `visits`: passes that these changes
// may look at. Nothing where no order holds so little, or fits.
std::optional<PipelineOrders> search_pipeline(const PipelineProblem& problem, std::int64_t most_held,
                                              std::int64_t visits);

// The same for forwards and input gradients in the pairs of 1F1B, or in loops of the interleaved schedule
// (schedule/weave.hpp): only when weight gradients run is searched for.
std::optional<PipelineOrders> search_paired_pipeline(const PipelineProblem& problem, std::int64_t most_held);

// By stage. `paired`: forwards and backwards form pairs where the schedule has them.
PipelineOrders chosen_pipeline(const Plan& plan, const CostModel& cost, const PipelineChoice& choice, bool paired);

}  // namespace weft
