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
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    // A blocking send would deadlock 1F1B: each neighbour would wait for the other to receive first.
    const bool send =
        op.communication && op.communication->collective == Collective::send_recv && op.communication->sends;
    plan.issues[i].blocking = op.is_transfer() && !send;
  }
  order_blocks(plan);
  place_values(plan);
  return plan;
}

}  // namespace weft
