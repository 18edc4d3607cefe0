// Cuts of products that begin with a rank's own rows while the gather of the others' runs (graph/own_rows.hpp).
#pragma once

#include "cost/cost_model.hpp"
#include "planner/partition/layer_cuts.hpp"

namespace weft {

// Every product that reads gathered rows in two parts, its own rows and all others, beside a gather that stays whole:
// nanotron's asynchronous linears.
LayerCuts own_row_cuts(const StepGraph& graph);

// A gather and the products that read it, cut into so many parts beside the own rows.
struct GatheredPair {
  OpId gather;
  std::vector<OpId> products;
};
bool may_be_exchanged(const StepGraph& graph, const GatheredPair& pair, std::int64_t pieces);
// Returns what the pair takes by modelled cost: part after part is multiplied as it arrives, behind the own rows.
double exchanged_seconds(const StepGraph& graph, const CostModel& cost, const GatheredPair& pair, std::int64_t pieces);
void cut_for_exchange(const GatheredPair& pair, std::int64_t pieces, LayerCuts& cuts);

}  // namespace weft
