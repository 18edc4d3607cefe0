// What flags leave to prediction with "auto" and follows from the layout alone: where the chunks of stages lie, how
// many layers these have, and which of them backward computes again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/flags.hpp"
#include "study/plan/chunk_placement_choice.hpp"
#include "study/plan/recompute_layers_choice.hpp"
#include "study/plan/stage_layers_choice.hpp"

namespace weft {

// What is decided before plans are made is predicted with the first policy named that needs no search.
std::string policy_to_predict_with(const Flags& flags, const std::vector<std::string>& policies);

// Nothing where the flag is not on auto, or says nothing of the layout; else the layout of `inputs` is the one that was
// chosen. Where chunks lie is left to prediction for policies that search the order too.
std::optional<ChunkPlacementChoice> decide_chunk_placement(const Flags& flags, const std::vector<std::string>& policies,
                                                           const Profile& profile, Inputs& inputs);
std::optional<StageLayersChoice> decide_stage_layers(const Flags& flags, const std::vector<std::string>& policies,
                                                     const Profile& profile, Inputs& inputs);
std::optional<RecomputeLayersChoice> decide_recompute_layers(const Flags& flags,
                                                             const std::vector<std::string>& policies,
                                                             const Profile& profile, Inputs& inputs);

}  // namespace weft
