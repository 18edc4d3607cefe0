#include "plan/policy/fsdp.hpp"

#include "base/error.hpp"
#include "cost/cost_model.hpp"
#include "plan/memory/place.hpp"
#include "plan/partition/units.hpp"
#include "plan/schedule/blocks.hpp"
#include "plan/schedule/overlap_zero.hpp"

namespace weft {
namespace {

// Once-a-step reductions start as soon as the last micro-batch has finished their layer, gathers (in order of use) when
// their parameters are updated.
void overlap_once_a_step(Plan& plan) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.per_micro_batch) continue;
    if (op.role == Role::grad_reduce || op.role == Role::param_gather) plan.issues[i].blocking = false;
    if (op.role == Role::replica_reduce) {
      // Behind the activations of tensor parallelism it would wait for the end of backward.
      plan.issues[i] = {communication_queue(plan.classes[op.rank_class.index()], "tp replicas"), false};
    }
  }
}

}  // namespace

Plan fsdp_plan(const PlanRequest& request, const StepGraph& graph) {
  if (request.options.prefetch < 0)
    fail("--prefetch {}: units to gather ahead are at least 0", request.options.prefetch);
  Plan plan;
  plan.policy = "fsdp";
  plan.model = request.model;
  plan.cluster = request.cluster;
  plan.layout = request.layout;
  plan.graph = merge_operations(graph, one_bucket_per_layer(graph));
  const Cluster cluster(request.cluster);
  choose_algorithms(plan.graph, CostModel(plan.graph, cluster, request.profile));
  issue_by_group(plan);
  block_on_transfers(plan);
  order_blocks(plan);
  overlap_once_a_step(plan);
  overlap_sharded_traffic(plan, {.gathers = true, .reductions = true, .prefetch = request.options.prefetch});
  place_values(plan);
  return plan;
}

}  // namespace weft
