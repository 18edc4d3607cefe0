// Which encodings of gradients and weights a layout may have.
#pragma once

#include "graph/layout.hpp"

namespace weft {

// Returns whether a format rounds every element by itself, so that without error feedback, over steps and ranks, its
// errors are small beside what is summed.
bool works_without_feedback(CompressionFormat format);

// Throws Error naming the flag, the value and what is allowed.
void validate_compression(const Layout& layout, const Transformer& model);

}  // namespace weft
