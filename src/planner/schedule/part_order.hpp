// Orders of the parts of cut layers that follow from the cut alone, without a search (schedule/weave.hpp searches).
#pragma once

#include <vector>

#include "plan/plan.hpp"

namespace weft {

// Where consecutive operations are cut into as many parts, the first part runs through all of them, then the second.
// Transfers that run beside compute end such a stretch; weight gradients within one come behind it.
void order_parts_in_turn(Plan& plan);

// `hides`: by operation of the model (schedule/weight_grad_fill.hpp). Weight gradients move behind the last part of the
// all-to-all that they hide.
void move_weight_grads(Plan& plan, const std::vector<OpId>& hides);

}  // namespace weft
