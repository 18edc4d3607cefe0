// Products with a rank's part of a weight. The output of a linear layer may lie in several matrices side by side.
// dX is added onto a gradient where the operation reads one. `rows`: of the tokens, where the operation is cut; empty:
// all. `read_rows`: where these are in what the product reads, if it is a value with other rows; empty: as `rows`.
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/operands.hpp"

namespace weft {

KernelCalls bind_linear(const RankView& view, const Operation& op, MicroBatch micro_batch, ElementRange rows = {},
                        ElementRange read_rows = {});
KernelCalls bind_linear_input_grad(const RankView& view, const Operation& op, MicroBatch micro_batch,
                                   ElementRange rows = {}, ElementRange read_rows = {});
KernelCalls bind_linear_weight_grad(const RankView& view, const Operation& op, MicroBatch micro_batch, Into into);

}  // namespace weft
