// Kernels wait for the host that issues them.
//
// The host issues a block's operations one after the other and runs ahead of the device; where kernels are short it
// cannot keep ahead, and the device waits. How long follows from the two clocks walked through the block, and is added
// to the operation that waits, so the engine needs no host of its own. A pipeline message stops the host: it issues on
// from the message's end. (Between blocks without one the host is taken to have caught up; what runs once a step it has
// issued before the last backward has ended.)
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"
#include "sim/engine.hpp"

namespace weft {

// `cost_of` gives the entry of `costs` of every operation; entries of operations in the chain are their own.
void add_issue_time(const Plan& plan, const CostModel& cost, const std::vector<std::int32_t>& cost_of,
                    std::vector<SimCost>& costs);

}  // namespace weft
