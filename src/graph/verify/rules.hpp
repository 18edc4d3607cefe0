// The pieces of verify_graph, and how a violation is worded.
#pragma once

#include <utility>

#include "base/error.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// "stage 0: layer 3 qkv forward"
std::string in_words(const StepGraph& graph, const Operation& op);

template <class... Args>
[[noreturn]] void reject(const StepGraph& graph, const Operation& op, fmt::format_string<Args...> format,
                         Args&&... args) {
  throw Error(fmt::format("{}: {}", in_words(graph, op), fmt::format(format, std::forward<Args>(args)...)));
}

// Each expects that ids are in range.
void verify_operands(const StepGraph& graph);
void verify_shapes(const StepGraph& graph);
void verify_transfers(const StepGraph& graph);
void verify_order(const StepGraph& graph);

}  // namespace weft
