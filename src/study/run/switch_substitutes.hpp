// Plans whose programs have steps in switches, for transports that cannot make sums there.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

// Gives every transfer whose program has steps in switches the fastest program without them, or the library's call
// where a library makes the collectives, and says so in a sentence for every pair of such programs. The switches of the
// plan's topology then only pass on. Empty, and the plan is as it was, where no program has such steps.
std::vector<std::string> substitute_switch_programs(Plan& plan);

}  // namespace weft
