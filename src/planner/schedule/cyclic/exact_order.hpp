// The optimal orders of small problems, against which the searches are measured.
#pragma once

#include <cstdint>

#include "planner/schedule/cyclic/cyclic_problem.hpp"
#include "planner/schedule/cyclic/list_order.hpp"

namespace weft {

// More operations than this are a broken invariant: the time grows exponentially.
inline constexpr std::int32_t kMaxExactOperations = 24;

// Returns orders whose period is the shortest possible, to 1e-10 of it. It takes milliseconds for 12 operations.
//
// It starts from list_order and asks repeatedly whether a shorter period exists. Branch and bound answers that
// question: of two operations on one queue or link either may run first, and each choice tightens how far apart all
// starts must be.
OrderFound exact_order(const CyclicProblem& problem);

}  // namespace weft
