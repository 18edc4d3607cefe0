// What `weft plan --megatron-args` says of the launch beside the best policy.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "study/plan/launch_gain.hpp"

namespace weft {

// One line; empty where there is nothing to compare.
std::string launch_gain_line(const std::optional<LaunchGain>& gain);
// Adds "launch", likewise.
void add_launch_gain(nlohmann::ordered_json& report, const std::optional<LaunchGain>& gain);

}  // namespace weft
