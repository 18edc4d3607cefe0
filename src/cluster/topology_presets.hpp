// Machines with their real wiring, as NAME or NAME:NODES.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/topology.hpp"

namespace weft {

std::vector<std::string> topology_preset_names();
// Returns whether the part before a colon is such a name.
bool is_topology_preset(std::string_view text);
// Throws Error with the name or number that is wrong.
Topology parse_topology(std::string_view text);

}  // namespace weft
