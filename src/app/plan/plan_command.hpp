// `weft plan`
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace weft {

int run_plan_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace weft
