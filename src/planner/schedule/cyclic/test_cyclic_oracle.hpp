// What repeating steps take, the slow and obvious way: every cycle, every order, every iteration.
#pragma once

#include <optional>

#include "planner/schedule/cyclic/cyclic_problem.hpp"

namespace weft::test {

// The largest ratio over all simple cycles of waits, each followed to its end; nothing where one spans no iteration.
std::optional<double> largest_cycle_ratio(const CyclicProblem& problem, const QueueOrders& orders);

// Runs `skip` iterations and then `measured` ones: how long each of those took on the slowest queue. The orders must
// run.
double mean_iteration(const CyclicProblem& problem, const QueueOrders& orders, int skip, int measured);

// The shortest period of all orders of all queues and links.
double shortest_of_all_orders(const CyclicProblem& problem);

}  // namespace weft::test
