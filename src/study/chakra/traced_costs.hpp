// How long the operations of a traced step take: as traced, or, for transfers on a cluster, by the model of its links.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.hpp"
#include "cost/cost_model.hpp"
#include "cost/profile.hpp"
#include "sim/engine.hpp"
#include "study/chakra/traced_step.hpp"

namespace weft {

struct TracedCosts {
  std::vector<SimCost> operations;  // by operation of the step
  std::vector<SimCost> least;       // the same with the least bytes that any algorithm moves and no latency
  std::int32_t resources = 0;
  SimRank device;                     // how transfers and compute slow each other down
  std::vector<std::string> warnings;  // which transfers keep their traced time
};

// Everything takes as long as in the trace; transfers do not disturb each other.
TracedCosts traced_costs(const TracedStep& step);

// Transfers between ranks of the cluster take what its links give them, and share these. Ranks without a file send and
// receive too, but nothing else of them is known. Throws Error where a rank is not of the cluster.
TracedCosts costs_on_cluster(const TracedStep& step, const Cluster& cluster, const Profile& profile);

}  // namespace weft
