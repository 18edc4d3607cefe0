// The best orders there are, for small problems: what the searches are measured against.
#pragma once

#include <cstdint>

#include "planner/schedule/cyclic/cyclic_problem.hpp"
#include "planner/schedule/cyclic/list_order.hpp"

namespace weft {

// More operations than this are a broken invariant: the time grows exponentially.
inline constexpr std::int32_t kMaxExactOperations = 16;

// No orders of lanes and links have a shorter period, but for 1e-10 of it. Milliseconds for 12 operations.
//
// Starts from list_order and asks again and again whether something shorter exists. That question is answered by branch
// and bound: two operations of one lane or link run one way round or the other, and each answer tightens how far apart
// all starts must be.
OrderFound exact_order(const CyclicProblem& problem);

}  // namespace weft
