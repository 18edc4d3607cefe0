// The names that Megatron-LM and PyTorch give an operation, for readers who know those and not ours.
#pragma once

#include <string>

#include "graph/layout.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// Returns at most 60 characters: "QKV projection (ColumnParallelLinear) fwd", "gradient all-reduce (DDP)".
std::string framework_words(const Operation& op, const Layout& layout);

}  // namespace weft
