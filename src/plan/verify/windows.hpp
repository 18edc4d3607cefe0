// The rule that work which fills idle time starts after its release and ends before its deadline, for every timing.
#pragma once

#include <optional>
#include <vector>

#include "plan/verify/verify_plan.hpp"

namespace weft {

// Checks all windows that the plan states, and those that its layout demands for users' tasks whether the plan states
// them or not. `order` has all instances, each after what it waits for.
std::optional<Violation> check_windows(const WholePlan& whole, const std::vector<InstanceId>& order);

}  // namespace weft
