// Decides by prediction how many layers every model chunk of a pipeline has.
#pragma once

#include <string>
#include <vector>

#include "cost/profile.hpp"
#include "study/plan/plan_outcome.hpp"

namespace weft {

struct StageLayersOption : PlanOutcome {
  std::vector<std::int64_t> layers;  // of each chunk
};

struct StageLayersChoice {
  std::string policy;                      // that steps were predicted with
  std::vector<StageLayersOption> options;  // as even as possible, then balanced by time
  std::size_t chosen = 0;
};

// The options are as even as possible, the layers that the layout has, those with which the slowest stage takes least,
// and the same if the first stage, which holds most micro-batches, took one and two layers' time longer. Of those that
// fit in memory the fastest is chosen; where none fits, the one that needs least memory. `fewest_recomputed`: each is
// looked at with the fewest recomputed layers that fit.
StageLayersChoice choose_stage_layers(const Inputs& inputs, const Profile& profile, const std::string& policy,
                                      bool fewest_recomputed = false);

// "9,9,8,6: 3.42 s a step and 56.2 GiB; as even as possible 3.89 s and 50.3 GiB (predicted with priority)"
std::string stage_layers_line(const StageLayersChoice& choice);

}  // namespace weft
