// Topologies of two simulators: ASTRA-sim's network files and the lists of links that TACOS reads. Their gigabyte has
// 2^30 bytes.
#pragma once

#include <string>

#include "cluster/topology.hpp"

namespace weft {

// YAML with the lists `topology` (Ring, FullyConnected, Switch), `npus_count`, `bandwidth` (GB/s) and `latency` (ns),
// one entry for every dimension; devices are numbered with the first dimension fastest. Throws Error with the file and
// the key.
Topology read_astra_sim_network(const std::string& text, const std::string& file_name);

// The number of devices, a line of titles, then lines of source, destination, latency (ns) and bandwidth (GB/s); every
// line is one direction. Throws Error with the file and the line.
Topology read_tacos_links(const std::string& text, const std::string& file_name);

}  // namespace weft
