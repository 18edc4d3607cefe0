#include "plan/policy/lancet.hpp"

#include "plan/policy/ddp.hpp"
#include "plan/schedule/weight_grad_fill.hpp"

namespace weft {

Overlap lancet_overlap(const PlanRequest& request, const StepGraph& graph) {
  Overlap overlap = ddp_overlap(request, graph);
  if (request.layout.ep == 1) return overlap;
  const Cluster cluster(request.cluster);
  const CostModel cost(graph, cluster, request.profile);
  overlap.layers = best_layer_cuts(graph, cost, true);
  overlap.expert_parallel = overlap.parts_in_turn = true;
  // ZeRO 2 and 3 hold the gradients of few layers at a time: theirs are not put off.
  if (request.layout.zero < 2) overlap.hides = fill_exchanges(graph, cost);
  return overlap;
}

}  // namespace weft
