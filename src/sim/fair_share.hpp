// Finds max-min fair speeds of transfers that share resources.
#pragma once

#include <span>
#include <vector>

#include "sim/engine.hpp"

namespace weft {

// speeds[i], in (0, 1], is how fast transfer i moves compared with running alone. All speeds rise together; whoever
// meets a full resource stops rising. `uses[i]` lists transfer i's shares.
std::vector<double> fair_speeds(const std::vector<std::span<const ResourceUse>>& uses);

}  // namespace weft
