// Megatron's --tp-comm-overlap, which is Transformer Engine's userbuffers. The gathers of a layer's forward, and those
// in front of its row-parallel linears' backward, are exchanged around the ring of tensor-parallel ranks: a rank
// multiplies its own rows first, then part by part what arrives (method `ring_exchange`). The reductions of forward are
// pipelined with the product before them (`pipeline`). What the column-parallel linears communicate in backward runs
// beside their products whole (`bulk`), with userbuffers or without (schedule/overlap_linear.hpp).
#pragma once

#include "cost/cost_model.hpp"
#include "planner/partition/layer_cuts.hpp"

namespace weft {

// A gather is exchanged in ring_exchange_pieces(tp) parts beside the own rows, a reduction cut into 1, 2, 4 or 8,
// whichever takes least by modelled cost: users set the number for each product (--tp-comm-overlap-cfg), and leave a
// pair whole where small products cost more than is hidden.
LayerCuts userbuffer_cuts(const StepGraph& graph, const Transformer& model, const CostModel& cost);

}  // namespace weft
