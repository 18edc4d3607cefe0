// How commands name a topology: a preset with its wiring, a cluster preset, or a file.
#pragma once

#include <string>

#include "app/flags.hpp"
#include "cluster/topology.hpp"

namespace weft {

// Declares --nvlink, which files that only count links need.
void declare_topology_flags(Flags& flags);
// "dgx-a100:2", "local:4,nic=200Mb/s" or a file. Throws Error.
Topology find_topology(const Flags& flags, const std::string& name);

}  // namespace weft
