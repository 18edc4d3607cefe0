// The words of `weft verify`, which `weft simulate` says too.
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "plan/verify/verify_plan.hpp"

namespace weft {

// Prints the result of verifying a plan file, in words or as one JSON object.
void print_verification(std::ostream& out, const std::string& file, const std::optional<Violation>& violation,
                        bool as_json);

}  // namespace weft
