// How urgent each operation is, judged by what waits for it. The larger the number, the sooner it should run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/schedule/cyclic/cyclic_graph.hpp"

namespace weft {

// The longest chain from the start of each operation to the end of its iteration.
std::vector<double> urgency_in_iteration(const CyclicGraph& graph, std::span<const std::int32_t> sequence);

// The longest chain, in which each step into the next iteration subtracts `period`, because what the next iteration
// needs late can wait (the height of modulo scheduling: Rau, Iterative modulo scheduling, MICRO 1994). Chains may go
// through at most `iterations` more iterations.
std::vector<double> urgency_by_next_use(const CyclicGraph& graph, std::span<const std::int32_t> sequence, double period,
                                        int iterations);

// The same with the waits of queues and links in the order of the sequence: how late each operation could start without
// delaying the others.
std::vector<double> urgency_in_order(const CyclicGraph& graph, std::span<const std::int32_t> sequence, double period,
                                     int iterations);

}  // namespace weft
