#include "planner/policy/tutel.hpp"

#include "planner/partition/layer_cuts.hpp"
#include "planner/policy/ddp.hpp"

namespace weft {

Overlap tutel_overlap(const PlanRequest& request, const StepGraph& graph) {
  Overlap overlap = ddp_overlap(request, graph);
  if (request.layout.ep == 1) return overlap;
  const Cluster cluster(request.cluster);
  const CostModel cost(graph, cluster, request.profile, request.programs);
  overlap.partition.layers = merge_cuts(expert_cuts(graph, best_expert_parts(graph, cost, true), true),
                                        expert_cuts(graph, best_expert_parts(graph, cost, false), false));
  overlap.beside.expert_parallel = overlap.order.parts_in_turn = overlap.beside.wait_for_last_part = true;
  return overlap;
}

}  // namespace weft
