// When the next iteration needs what a step leaves: the order in which gradients, updates and gathers are urgent.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "graph/step_graph.hpp"

namespace weft {

inline constexpr std::int32_t kNeverUsed = std::numeric_limits<std::int32_t>::max();

// By operation, for those that run once a step: the first operation in graph order, which is that of forward, that
// reads in the next iteration what follows from this one (a weight by way of its update and gather). The norm of all
// gradients does not count: it makes everything wait for everything. kNeverUsed for all others.
std::vector<std::int32_t> next_use(const StepGraph& graph);

}  // namespace weft
