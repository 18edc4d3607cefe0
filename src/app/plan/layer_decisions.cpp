#include "app/plan/layer_decisions.hpp"

#include <algorithm>

#include "app/inputs.hpp"
#include "planner/policy/policy.hpp"

namespace weft {

std::string policy_to_predict_with(const Flags& flags, const std::vector<std::string>& policies) {
  const auto found = std::find_if_not(policies.begin(), policies.end(), searches);
  return flags.given("policy") && found != policies.end() ? *found : "priority";
}

std::optional<ChunkPlacementChoice> decide_chunk_placement(const Flags& flags, const std::vector<std::string>& policies,
                                                           const Profile& profile, Inputs& inputs) {
  const auto searched = std::ranges::find_if(policies, searches);
  const bool is_open = leaves_placement_open(flags) && inputs.layout.pp > 1;
  if (!is_open || searched == policies.end()) return std::nullopt;
  ChunkPlacementChoice choice = choose_chunk_placement(inputs, profile, *searched);
  inputs.layout.schedule = choice.best().schedule;
  return choice;
}

std::optional<StageLayersChoice> decide_stage_layers(const Flags& flags, const std::vector<std::string>& policies,
                                                     const Profile& profile, Inputs& inputs) {
  if (flags.text("stage-layers") != "auto") return std::nullopt;
  StageLayersChoice choice = choose_stage_layers(inputs, profile, policy_to_predict_with(flags, policies),
                                                 flags.text("recompute-layers") == "auto");
  inputs.layout.stage_layers = choice.options[choice.chosen].layers;
  return choice;
}

std::optional<RecomputeLayersChoice> decide_recompute_layers(const Flags& flags,
                                                             const std::vector<std::string>& policies,
                                                             const Profile& profile, Inputs& inputs) {
  if (flags.text("recompute-layers") != "auto" || !recomputes_layers(inputs.layout.recompute)) return std::nullopt;
  const auto searched = std::ranges::find_if(policies, searches);
  RecomputeLayersChoice choice = choose_recompute_layers(inputs, profile, policy_to_predict_with(flags, policies),
                                                         searched != policies.end() ? *searched : "");
  inputs.layout = with_chosen(choice, inputs.layout);
  return choice;
}

}  // namespace weft
