// Megatron's --tp-comm-overlap, which is Transformer Engine's userbuffers: a gather is pipelined with the product that
// reads it, a product with the reduction that reads it. This holds for the four communications of a layer's forward and
// for the gathers in front of its row-parallel linears' backward; what the column-parallel ones communicate in backward
// runs beside their products whole, with userbuffers or without (schedule/overlap_linear.hpp).
#pragma once

#include "cost/cost_model.hpp"
#include "planner/partition/layer_cuts.hpp"

namespace weft {

// Cuts each pair into 1, 2, 4 or 8 parts, whichever takes least by modelled cost: users set the number for each product
// (--tp-comm-overlap-cfg), and leave a pair whole where small products cost more than is hidden.
LayerCuts userbuffer_cuts(const StepGraph& graph, const Transformer& model, const CostModel& cost);

}  // namespace weft
