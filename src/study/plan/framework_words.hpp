// What Megatron-LM and PyTorch call an operation, for readers who know those and not our names.
#pragma once

#include <string>

#include "graph/layout.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// "QKV projection (ColumnParallelLinear) fwd", "gradient all-reduce (DDP)". At most 60 characters.
std::string framework_words(const Operation& op, const Layout& layout);

}  // namespace weft
