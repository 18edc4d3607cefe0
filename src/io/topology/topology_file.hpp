// Reads a topology, whatever wrote the file: our JSON, a cluster (docs/cluster-format.md), TACCL, NCCL's XML or
// hwloc's, or the table of nvidia-smi. The text itself says which it is.
#pragma once

#include <optional>
#include <string>

#include "cluster/topology.hpp"

namespace weft {

// `nvlink` is the bandwidth of one NVLink for files that only count them; without it 25 GB/s, or what NCCL assumes.
// Throws Error with the file and the mistake.
Topology read_topology_file(const std::string& text, const std::string& file_name, std::optional<Bandwidth> nvlink);

}  // namespace weft
