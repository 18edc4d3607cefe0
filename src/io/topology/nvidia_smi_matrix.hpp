// The table that `nvidia-smi topo -m` prints, as a topology of one node.
#pragma once

#include <string>

#include "cluster/topology.hpp"

namespace weft {

// Throws Error with the file and the line where it is no such table. `nvlink` is the bandwidth of one NVLink, which the
// table does not say. PCIe and NICs are left out where NVLink alone
// joins all devices: nobody sends over both.
Topology read_nvidia_smi_matrix(const std::string& text, const std::string& file_name, Bandwidth nvlink);

}  // namespace weft
