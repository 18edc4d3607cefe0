// Topologies as JSON (docs/topology-format.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cluster/topology.hpp"

namespace weft {

// Throws Error with the file, the key, the value and what was allowed.
Topology topology_from_json(const nlohmann::json& value, const std::string& file_name);
// Reading what these write gives the same topology.
nlohmann::ordered_json topology_to_json(const Topology& topology);
std::string write_topology_json(const Topology& topology);

}  // namespace weft
