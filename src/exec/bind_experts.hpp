// Routed experts on a rank: gate, dispatch, the experts' products, combine, and their gradients.
#pragma once

#include <functional>

#include "exec/operands.hpp"

namespace weft {

std::function<void(std::int64_t step)> bind_experts(const RankView& view, const Operation& op,
                                                    std::int32_t micro_batch);
std::function<void(std::int64_t step)> bind_experts_input_grad(const RankView& view, const Operation& op,
                                                               std::int32_t micro_batch);
std::function<void(std::int64_t step)> bind_experts_weight_grad(const RankView& view, const Operation& op,
                                                                std::int32_t micro_batch, Into into);

}  // namespace weft
