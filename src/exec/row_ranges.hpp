// Which rows of a rank's activations a part of an operation works on (graph/operation_part.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "base/element_range.hpp"
#include "graph/layout.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// The rows of a matrix with `rows` rows, a shard or all of them, that a part works on.
std::vector<ElementRange> row_ranges(const Layout& layout, std::int64_t rows, const Origin& part);

}  // namespace weft
