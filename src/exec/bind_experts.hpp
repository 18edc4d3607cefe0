// Routed experts on a rank: gate, dispatch, the experts' products, combine, and their gradients; whole, or a part of
// the tokens or of every expert's capacity (graph/operation_part.hpp).
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/operands.hpp"

namespace weft {

// Whether these are for it: forward, again, and dX; of the products of experts also dW.
bool is_of_routed_experts(const Operation& op);

KernelCalls bind_experts(const RankView& view, const Operation& op, MicroBatch micro_batch, const Origin& part = {});
KernelCalls bind_experts_weight_grad(const RankView& view, const Operation& op, MicroBatch micro_batch, Into into);

}  // namespace weft
