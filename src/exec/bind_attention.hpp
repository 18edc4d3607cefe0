// The attention of a rank: its heads, and the positions of each sequence that it holds the queries of.
#pragma once

#include <functional>

#include "exec/operands.hpp"

namespace weft {

std::function<void(std::int64_t step)> bind_attention(const RankView& view, const Operation& op,
                                                      std::int32_t micro_batch);
std::function<void(std::int64_t step)> bind_attention_grad(const RankView& view, const Operation& op,
                                                           std::int32_t micro_batch);

}  // namespace weft
