#include "planner/policy/lancet.hpp"

#include "planner/policy/ddp.hpp"
#include "planner/schedule/weight_grad_fill.hpp"

namespace weft {

Overlap lancet_overlap(const PlanRequest& request, const StepGraph& graph) {
  Overlap overlap = ddp_overlap(request, graph);
  if (request.layout.ep == 1) return overlap;
  const Cluster cluster(request.cluster);
  const CostModel cost(graph, cluster, request.profile, request.programs);
  overlap.partition.layers = best_layer_cuts(graph, cost, true).cuts;
  overlap.beside.expert_parallel = overlap.order.parts_in_turn = overlap.order.reduce_in_gaps = true;
  const CutsFound backward = best_layer_cuts(graph, cost, false);
  // Where gradients are reduced in every micro-batch, those of few layers are held at a time: they are not put off.
  if (request.layout.zero == 3 || !request.layout.reduces_once_a_step()) {
    overlap.partition.layers = merge_cuts(overlap.partition.layers, backward.cuts);
    return overlap;
  }
  ExchangeFill whole = fill_exchanges(graph, cost), cut = fill_exchanges(graph, cost, backward.exposed());
  const bool cuts = backward.ns - cut.hidden_ns < backward.whole_ns - whole.hidden_ns;
  if (cuts) overlap.partition.layers = merge_cuts(overlap.partition.layers, backward.cuts);
  overlap.order.hides = std::move(cuts ? cut.hides : whole.hides);
  return overlap;
}

}  // namespace weft
