// Which rows of a rank's activations a part of an operation works on (graph/operation_part.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "base/element_range.hpp"
#include "graph/layout.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// The rows of a matrix with `rows` rows, a shard or all of them, that a part works on. `own`: this rank's place among
// the tensor-parallel ones, which parts of others' rows leave out (graph/own_rows.hpp).
std::vector<ElementRange> row_ranges(const Layout& layout, std::int64_t rows, const Origin& part, std::int64_t own = 0);

// The rows that a tensor-parallel rank holds itself, sequence by sequence: where they are among all rows, and where in
// its shard.
struct OwnRows {
  ElementRange in_all, in_shard;
};
std::vector<OwnRows> own_row_ranges(const Layout& layout, std::int64_t own);

}  // namespace weft
