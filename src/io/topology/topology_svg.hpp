// A topology as a picture: machines side by side, their devices below, NICs and switches above them, and what joins
// machines on top. A line is as thick as the link is fast.
#pragma once

#include <ostream>

#include "cluster/topology.hpp"

namespace weft {

void write_topology_svg(std::ostream& out, const Topology& topology);

}  // namespace weft
