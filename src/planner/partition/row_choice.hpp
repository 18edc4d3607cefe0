// Chooses by modelled cost into how many parts layers are cut by rows.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// Returns the part counts that are worth looking at: powers of two up to kMaxRowCuts that divide the rows. The first
// is 1.
std::vector<std::int32_t> possible_rows(const StepGraph& graph);

// Returns one of so many equal parts of an operation, for its cost.
Operation one_of(const Operation& op, std::int32_t parts);

struct RowChoice {
  std::int32_t forward = 1, backward = 1;
};
// A pass whose layers compute for C and communicate for T, cut into k parts, takes about max(C_k, T_k) + min(C_k,
// T_k)/k: the last part of the one cannot hide behind the other. C_k and T_k are the sums of the parts, each with its
// own loss of efficiency and latency; in backward the weight gradients hide communication whole. The least wins, fewer
// parts on ties.
RowChoice choose_rows(const StepGraph& graph, const CostModel& cost);

}  // namespace weft
