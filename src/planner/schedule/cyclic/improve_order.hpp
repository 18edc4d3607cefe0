// Better orders by local search: moves off the critical cycle, one at a time.
#pragma once

#include <cstdint>

#include "planner/schedule/cyclic/cyclic_problem.hpp"
#include "planner/schedule/cyclic/list_order.hpp"

namespace weft {

struct ImproveOptions {
  // Ends when that many operations have been looked at, whatever the machine's speed.
  std::int64_t visits = 1'000'000;
  std::uint32_t seed = 1;
  // A period that is known to be the shortest possible, where the caller knows more than period_bound does.
  double bound_ns = 0;
};

struct Improved {
  LaneOrders orders;
  double period_ns = 0;
  std::int64_t visits = 0;
  bool optimal = false;  // reached the bound
};

// Never worse than `orders`, which must run. The same for the same seed.
//
// Takes moves off the critical cycle, also such that make the step a little longer than the best, and does not undo
// them for a while; starts anew, from the best orders with a few operations moved, when that leads nowhere.
Improved improve_order(const CyclicProblem& problem, const LaneOrders& orders, const ImproveOptions& options = {});

// From scratch: list_order, then this.
Improved plan_order(const CyclicProblem& problem, const ImproveOptions& options = {});

}  // namespace weft
