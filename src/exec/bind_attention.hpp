// Binds the attention of a rank: its heads, and the positions of each sequence that it holds the queries of.
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/operands.hpp"

namespace weft {

// `seed` is that of dropout, where the model has it. Where the operation is cut, `rows` are those of whole sequences.
KernelCalls bind_attention(const RankView& view, std::uint64_t seed, const Operation& op, MicroBatch micro_batch,
                           ElementRange rows = {});
KernelCalls bind_attention_grad(const RankView& view, std::uint64_t seed, const Operation& op, MicroBatch micro_batch,
                                ElementRange rows = {});

}  // namespace weft
