// Adds the time that kernels wait for the host that issues them.
//
// The host issues a block's operations one after the other and runs ahead of the device. Where kernels are short it
// cannot keep ahead, and the device waits. A walk through the block with two clocks finds how long; that time is added
// to the operation that waits, so the engine needs no host of its own. Where compute waits for a layer's traffic beside
// it, the host gets ahead, and that traffic starts when the host has issued it. A pipeline message stops the host,
// which goes on when the message has ended. (Between blocks without a message the host is assumed to have caught up;
// operations that run once a step are assumed to be issued before the last backward has ended.)
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
