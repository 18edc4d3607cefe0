// The norms of queries and keys (Qwen3): RMSNorm of every head by itself, before positions are rotated in.
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/operands.hpp"

namespace weft {

KernelCalls bind_qk_norm(const RankView& view, const Operation& op, MicroBatch micro_batch);
KernelCalls bind_qk_norm_input_grad(const RankView& view, const Operation& op, MicroBatch micro_batch);
KernelCalls bind_qk_norm_weight_grad(const RankView& view, const Operation& op, MicroBatch micro_batch, Into into);

}  // namespace weft
