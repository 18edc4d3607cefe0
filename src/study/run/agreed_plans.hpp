// What ranks that are processes compare of the plans that each of them made (agreed_settings.hpp).
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "study/run/agreed_settings.hpp"

namespace weft {

// Of everything that a plan file says.
std::string plan_digest(const Plan& plan);

// What follows from flags and measurements: a digest of the plan of every policy.
AgreedSettings agreed_plans(const std::vector<const Plan*>& plans);

}  // namespace weft
