// The topology of a node as hwloc writes it (lstopo --of xml): packages, NUMA nodes, PCI bridges and devices, and the
// matrix of NVLink, xGMI or Xe Link bandwidths.
#pragma once

#include <string>

#include "cluster/topology.hpp"
#include "io/msccl/xml_reader.hpp"

namespace weft {

// Reads versions 2 and 3 of the format. PCIe and NICs are left out where the other links alone join all devices.
Topology read_hwloc_topology(const XmlElement& root, const std::string& file_name);

}  // namespace weft
