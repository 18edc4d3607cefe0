#include "planner/policy/tutel.hpp"

#include "planner/partition/layer_cuts.hpp"
#include "planner/policy/ddp.hpp"

namespace weft {

Overlap tutel_overlap(const PlanRequest& request, const StepGraph& graph) {
  Overlap overlap = ddp_overlap(request, graph);
  if (request.layout.ep == 1) return overlap;
  const Cluster cluster(request.cluster);
  const CostModel cost(graph, cluster, request.profile, request.programs);
  overlap.layers = both(expert_cuts(graph, best_expert_parts(graph, cost, true), true),
                        expert_cuts(graph, best_expert_parts(graph, cost, false), false));
  overlap.expert_parallel = overlap.parts_in_turn = overlap.wait_for_last_part = true;
  return overlap;
}

}  // namespace weft
