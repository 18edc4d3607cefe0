// What flags leave to prediction with "auto" and follows from the layout alone: layers of stages, and which of them
// backward computes again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/flags.hpp"
#include "study/plan/recompute_layers_choice.hpp"
#include "study/plan/stage_layers_choice.hpp"

namespace weft {

// What is decided before plans are made is predicted with the first policy named that needs no search.
std::string policy_to_predict_with(const Flags& flags, const std::vector<std::string>& policies);

// Nothing where the flag is not on auto, or says nothing of the layout; else the layout of `inputs` is the one that was
// chosen.
std::optional<StageLayersChoice> decide_stage_layers(const Flags& flags, const std::vector<std::string>& policies,
                                                     const Profile& profile, Inputs& inputs);
std::optional<RecomputeLayersChoice> decide_recompute_layers(const Flags& flags,
                                                             const std::vector<std::string>& policies,
                                                             const Profile& profile, Inputs& inputs);

}  // namespace weft
