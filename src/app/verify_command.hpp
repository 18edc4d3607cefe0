// `weft verify`
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "plan/verify/verify_plan.hpp"

namespace weft {

int run_verify_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

// What the proof of a plan file came to, in words or as one JSON object.
void print_verification(std::ostream& out, const std::string& file, const std::optional<Violation>& violation,
                        bool as_json);

}  // namespace weft
