// Chooses who moves the bytes of every transfer: the library's thread blocks, as few as do, or copy engines.
#pragma once

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"
#include "planner/overlap.hpp"

namespace weft {

MoverKind mover_kind(const Operation& transfer);
// The kinds of transfers beside compute that somebody else than the library could move, in the order of the graph.
std::vector<MoverKind> kinds_with_movers(const Plan& plan, const CostModel& cost);

// A transfer that compute waits for stays with the library, which is the fastest. Members of a transfer in several
// classes have the mover of the lowest class.
void choose_movers(Plan& plan, const CostModel& cost, const MoverChoice& choice);

}  // namespace weft
