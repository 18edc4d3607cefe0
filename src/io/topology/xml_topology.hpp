// A topology from XML: NCCL's and RCCL's (<system>) or hwloc's (<topology>). The root element says which.
#pragma once

#include <optional>
#include <string>

#include "cluster/topology.hpp"

namespace weft {

// Throws Error with the file, the line and the element; also in a build without pugixml. `nvlink` is the bandwidth of
// one NVLink or xGMI link, for files of NCCL and RCCL, which count them.
Topology read_xml_topology(const std::string& text, const std::string& file_name, std::optional<Bandwidth> nvlink);

}  // namespace weft
