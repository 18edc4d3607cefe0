// Ranks tell each other what steps cost their hosts.
#pragma once

#include "comm/communicator.hpp"
#include "exec/graph_choice.hpp"

namespace weft {

// By rank, on every rank.
std::vector<HostCost> costs_of_all(Communicator& communicator, const HostCost& own);
// The report with the costs of the rank whose host takes longest.
HostReport with_slowest_host(Communicator& communicator, HostReport own);

}  // namespace weft
