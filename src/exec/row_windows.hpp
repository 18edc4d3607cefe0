// Which rows of a rank's activations a part of an operation works on (graph/operation_part.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "base/element_range.hpp"
#include "graph/layout.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// Under sequence parallelism rank r of n holds the r-th n-th of every sequence, one sequence after the other. Where in
// the rows of all ranks together (sequence after sequence) the rows `of_shard` of rank r lie; neighbours are joined.
std::vector<ElementRange> rows_of_shard(const Layout& layout, std::int64_t r, ElementRange of_shard);

// The rows of a matrix with `rows` rows, a shard or all of them, that a part works on.
std::vector<ElementRange> row_windows(const Layout& layout, std::int64_t rows, const Origin& part);

}  // namespace weft
