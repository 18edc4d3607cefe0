// Decides by prediction where the two model chunks of every stage lie: in waves or in loops.
#pragma once

#include <string>
#include <vector>

#include "cost/profile.hpp"
#include "study/plan/plan_outcome.hpp"

namespace weft {

struct ChunkPlacementOption : PlanOutcome {
  PipelineSchedule schedule = PipelineSchedule::searched_waves;
};

struct ChunkPlacementChoice {
  std::string policy;  // that steps were predicted with
  std::vector<ChunkPlacementOption> options;
  std::size_t chosen = 0;

  const ChunkPlacementOption& best() const { return options[chosen]; }
};

// `policy` searches. Each placement is planned with it, for a short time; what fits is taken, then the shorter step.
ChunkPlacementChoice choose_chunk_placement(const Inputs& inputs, const Profile& profile, const std::string& policy);

// "auto-loops: 17.6 s a step and 60.1 GiB; auto-waves 17.8 s a step and 62.3 GiB (predicted with weft)"
std::string chunk_placement_line(const ChunkPlacementChoice& choice);

}  // namespace weft
