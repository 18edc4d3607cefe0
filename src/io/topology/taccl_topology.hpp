// TACCL's topology files: how many microseconds a chunk takes over the links of a known kind of machine.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cluster/topology.hpp"

namespace weft {

// Returns one node. The file's `name` says which machine (NDv2: the cube mesh of a DGX-1V; DGX2: sixteen devices on a
// switch) and the size of the chunk, as in "NDv2_1MB". Throws Error with the key where it is another.
Topology topology_from_taccl(const nlohmann::json& value, const std::string& file_name);

}  // namespace weft
