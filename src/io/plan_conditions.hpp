// What the time of a plan depends on beside the plan itself: the constants in force, and what people wished of links
// and movers. A plan file has it by value, so whoever simulates the file finds the same step and the same bound.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cluster/cluster.hpp"
#include "cost/profile.hpp"

namespace weft {

struct PlanConditions {
  Profile profile;           // its programs are in the plan
  bool userbuffers = false;  // tensor parallelism may move bytes without thread blocks, which the bound allows for
  std::string flags;         // that they follow from, for people: "--framework nemo --cuda-graphs full"
  // No time depends on these: flags of a Megatron script that decide what is trained, as it has them.
  std::vector<std::string> launch_flags = {};
};

// It keeps only the devices and levels of the plan's cluster from the profile.
nlohmann::ordered_json conditions_to_json(const PlanConditions& conditions, const ClusterSpec& cluster);

// Throws Error that begins with `where` and names the key, the value and what is allowed.
PlanConditions conditions_from_json(const nlohmann::json& value, const std::string& where);

}  // namespace weft
