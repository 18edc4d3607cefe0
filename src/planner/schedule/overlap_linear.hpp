// What the backward of a column-parallel linear communicates, beside its own two products: Megatron's
// LinearWithGradAccumulationAndAsyncCommunication. With sequence parallelism the input is gathered again beside the
// product of the input gradient, which is then reduced and scattered beside the product of the weight gradient; without
// it, that gradient's all-reduce runs beside the weight gradient's product.
#pragma once

#include "graph/step_graph.hpp"
#include "plan/plan.hpp"

namespace weft {

// One of these two communications.
bool is_of_linear_backward(const Operation& operation);

void overlap_linear_backward(Plan& plan);

// What is gathered again waits for the computation that is issued before it, as NCCL's stream does for the stream of
// whoever calls it: it does not run ahead of its layer. To be called when blocks have their order.
void gather_again_in_turn(Plan& plan);

}  // namespace weft
