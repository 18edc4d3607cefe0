// Ranks that are processes each make their plans, and compare them by these digests (agreed_settings.hpp).
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "study/run/agreed_settings.hpp"

namespace weft {

// Covers everything that a plan file says.
std::string plan_digest(const Plan& plan);

// Returns a digest of each plan.
AgreedSettings agreed_plans(const std::vector<const Plan*>& plans);

}  // namespace weft
