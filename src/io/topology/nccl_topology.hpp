// The topology of a node as NCCL and RCCL dump it (NCCL_TOPO_DUMP_FILE) and read it (NCCL_TOPO_FILE).
#pragma once

#include <optional>
#include <string>

#include "cluster/topology.hpp"
#include "io/msccl/xml_reader.hpp"

namespace weft {

// `nvlink` is the bandwidth of one NVLink or xGMI link; without it, what NCCL and RCCL themselves assume for the
// device. PCIe and NICs are left out where NVLink alone joins all devices.
Topology read_nccl_topology(const XmlElement& system, const std::string& file_name, std::optional<Bandwidth> nvlink);

}  // namespace weft
