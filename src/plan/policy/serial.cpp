#include "plan/policy/serial.hpp"

#include <map>

#include "cost/cost_model.hpp"
#include "plan/memory/place.hpp"
#include "plan/partition/merge.hpp"
#include "plan/schedule/blocks.hpp"

namespace weft {

Plan serial_plan(const PlanRequest& request, const StepGraph& graph) {
  Plan plan;
  plan.policy = "serial";
  plan.model = request.model;
  plan.cluster = request.cluster;
  plan.layout = request.layout;
  plan.graph = merge_operations(graph, one_bucket(graph));
  const Cluster cluster(request.cluster);
  choose_algorithms(plan.graph, CostModel(plan.graph, cluster, request.profile));
  issue_by_group(plan);
  block_on_transfers(plan);
  order_blocks(plan);
  place_values(plan);
  return plan;
}

}  // namespace weft
