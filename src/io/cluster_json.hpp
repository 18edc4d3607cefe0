// Clusters as JSON (docs/cluster-format.md): files that users write, and the cluster inside a plan file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cluster/cluster.hpp"

namespace weft {

// Both readers also check the rules of a cluster, so that a mistake is reported with the file it stands in.
ClusterSpec read_cluster_json(const std::string& text, const std::string& file_name);
// `where` is what error messages open with, e.g. "plan.json: cluster".
ClusterSpec cluster_from_json(const nlohmann::json& value, const std::string& where);

// Reading what these write gives the same spec, to the last bit.
std::string write_cluster_json(const ClusterSpec& spec);
nlohmann::json cluster_to_json(const ClusterSpec& spec);

}  // namespace weft
