// `weft simulate`
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace weft {

// Exit code 0: the plan is safe and fits in memory; 1: it is unsafe (then it is not simulated) or does not fit.
int run_simulate_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace weft
