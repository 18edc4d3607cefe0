// Improves orders by local search, which moves one operation at a time off the critical cycle.
#pragma once

#include <cstdint>

#include "planner/schedule/cyclic/cyclic_problem.hpp"
#include "planner/schedule/cyclic/list_order.hpp"

namespace weft {

struct ImproveOptions {
  // The search ends when it has looked at this many operations, so its result does not depend on the machine's speed.
  std::int64_t visits = 1'000'000;
  std::uint32_t seed = 1;
  // A period that is known to be the shortest possible, where the caller knows more than period_bound does.
  double bound_ns = 0;
};

struct Improved {
  QueueOrders orders;
  double period_ns = 0;
  std::int64_t visits = 0;
  bool optimal = false;  // reached the bound
};

// Returns orders that are at least as good as `orders`, which must be free of deadlock. Equal seeds give equal results.
//
// The search also accepts moves that make the step a little longer than the best one, and does not undo them for a
// while (tabu search). When that leads nowhere, it restarts from the best orders with a few operations moved at random.
Improved improve_order(const CyclicProblem& problem, const QueueOrders& orders, const ImproveOptions& options = {});

// The same, starting from list_order.
Improved plan_order(const CyclicProblem& problem, const ImproveOptions& options = {});

}  // namespace weft
