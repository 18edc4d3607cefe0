// Gradient reductions between all-to-alls. Both use the links between nodes; side by side each takes as long as both,
// and backward waits for the all-to-alls alone. So a reduction starts when an all-to-all has ended and is through
// before the next begins, as far as there is room.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"

namespace weft {

// Plain numbers, nanoseconds.
struct GapProblem {
  struct Busy {
    double begin = 0, end = 0;
  };
  struct Piece {
    double ready = 0, length = 0;
  };
  std::vector<Busy> busy;     // the all-to-alls, one behind the other
  std::vector<Piece> pieces;  // the reductions, in the order in which they go
};
// By piece: the busy stretch whose end it waits for; -1: it starts when it is ready and the piece before it has ended.
// Each goes into the first gap that holds it, behind the last stretch if there is none; one that is longer than all
// gaps between stretches goes into the first that is left, and overlaps what follows.
std::vector<std::int32_t> fit_into_gaps(const GapProblem& problem);

// Adds such waits for the reductions that a step makes once, beside the backward pass that ends it. After the order of
// operations is settled.
void reduce_in_gaps(Plan& plan, const CostModel& cost);

}  // namespace weft
