// Graph rewrite: a large transfer becomes parts that travel one by one (graph/transfer_part.hpp says what a part is).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/step_graph.hpp"

namespace weft {

// `merged` as merge_operations gives it: its operations name their origins in `whole`, the graph of the model. `parts`:
// by operation of `whole`, into how many parts it is cut; 1: it stays whole, as does what was merged with others and
// what may not be cut. A transfer has no more parts than elements. Where members are in several classes the lowest one
// decides, and all are cut alike: the first part keeps the transfer's number, the others get new ones.
StepGraph cut_transfers(const StepGraph& merged, const StepGraph& whole, const std::vector<std::int32_t>& parts);

}  // namespace weft
