// Graph rewrite: operations become parts (graph/operation_part.hpp says which may be cut and what a part touches).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/step_graph.hpp"

namespace weft {

// `merged` as merge_operations gives it: its operations name their origins in `whole`, the graph of the model. `parts`:
// by operation of `whole`, into how many parts it is cut; 1: it stays whole, as does what was merged with others and
// what may not be cut. Below 0, a transfer of a step is cut into that many parts that grow: the first two are alike,
// and each other one is twice as long as the one before it, so that what follows the first of them begins early and few
// of them are short. `axes`: by operation, along which axis; empty: all along axis 0. Where so many are not possible,
// the next smaller number is taken. The parts of an operation follow each other in its place. Where members of a
// transfer are in several classes the lowest one decides, and all are cut alike: the first part keeps the transfer's
// number, the others get new ones.
// Returns the number of pieces that growing parts consist of: the first is one of them, the last is half of all.
constexpr std::int64_t pieces_of_growing(std::int64_t parts) {
  return std::int64_t{1} << (parts - 1);
}

StepGraph cut_operations(const StepGraph& merged, const StepGraph& whole, const std::vector<std::int32_t>& parts,
                         const std::vector<std::int32_t>& axes = {});

}  // namespace weft
