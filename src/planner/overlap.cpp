#include "planner/overlap.hpp"

#include <algorithm>

#include "cost/cost_model.hpp"

namespace weft {

bool receives_early(const PlanRequest& request) {
  return request.layout.vpp > 1;
}

double least_step_seconds(const PlanRequest& request, const StepGraph& graph, const Overlap& overlap) {
  StepGraph parts = partition_graph(graph, overlap.partition, overlap.beside.expert_parallel);
  const Cluster cluster(request.cluster);
  const CostModel cost(parts, cluster, request.profile, request.programs);
  choose_algorithms(parts, cost);
  std::vector<double> busy(parts.classes.size(), 0);
  for (const Operation& op : parts.operations) {
    if (op.communication && !is_waited_for(op, overlap.beside)) continue;
    busy[op.rank_class.index()] +=
        seconds(cost.alone(op)) * static_cast<double>(op.per_micro_batch ? parts.micro_batches : 1);
  }
  return *std::max_element(busy.begin(), busy.end());
}

}  // namespace weft
