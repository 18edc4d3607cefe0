// Runs a traced step in a given order on the simulator's engine, and bounds what any order takes.
#pragma once

#include <string>
#include <vector>

#include "study/chakra/traced_costs.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// `sequence` holds every operation once; every queue takes its operations in this order.
struct TracedOrder {
  std::vector<std::int32_t> sequence;
  bool control = false;     // control dependencies hold too
  bool one_by_one = false;  // a rank's device does one thing at a time
};

// The next step begins when all ranks have ended this one, so the period is the time from the first start to the last
// end. The sequence must respect the dependencies that hold.
Timeline simulate_traced(const TracedStep& step, const TracedCosts& costs, const TracedOrder& order);

// Which operations hold a rank's operation back beside its data dependencies: the one before it in its queue. By rank
// and node, positions of nodes; what a trace with this order has as control dependencies.
std::vector<std::vector<std::vector<std::int32_t>>> order_dependencies(const TracedStep& step,
                                                                       const TracedOrder& order);

struct TracedBound {
  double ns = 0;
  std::string reason;  // "compute of rank 3", "dependencies", "nic out 5"
};
// No order of the operations that respects data dependencies takes less: every queue does its work one after the other,
// behind what its first operation needs and before what needs its last one.
TracedBound bound_traced(const TracedStep& step, const TracedCosts& costs);

}  // namespace weft
