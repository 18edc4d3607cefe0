// Finds memory hazards: every access of two iterations, in issue order, is held against who owns the bytes and who may
// still use them. An access by an operation that runs beside compute counts until it has surely ended.
#pragma once

#include <optional>
#include <vector>

#include "plan/verify/verify_plan.hpp"

namespace weft {

// `order` has all instances, each after what it waits for.
std::optional<Violation> check_hazards(const WholePlan& whole, const std::vector<InstanceId>& order);

}  // namespace weft
