// What a plan would gain over the policy that a Megatron launch has.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/plan/plan_study.hpp"

namespace weft {

// What the launch is compared with: itself between `serial` and `weft`.
std::vector<std::string> policies_beside(const std::string& launched);

// One line, of the best policy over the launch's own. Empty where the launch's own has no plan.
std::string launch_gain_line(const PlanStudy& study, const std::string& launched);
void add_launch_gain(nlohmann::ordered_json& report, const PlanStudy& study, const std::string& launched);

}  // namespace weft
