// Keys and values of the slices of a sequence (Layout::slice_tokens): copied side by side for attention, and their
// gradients added up on the way back.
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/operands.hpp"

namespace weft {

KernelCalls bind_kv_join(const RankView& view, const Operation& op, MicroBatch micro_batch);
// `into`: whether slices behind this one have left gradients to add to.
KernelCalls bind_kv_grad_sum(const RankView& view, const Operation& op, MicroBatch micro_batch, Into into);

}  // namespace weft
