#include "planner/policy/megatron.hpp"

#include "cluster/device_kind.hpp"
#include "cost/cost_model.hpp"
#include "planner/partition/buckets.hpp"
#include "planner/partition/userbuffer_cuts.hpp"
#include "planner/policy/megatron_options.hpp"

namespace weft {
namespace {

bool distributed_optimizer(const PlanRequest& request) {
  return request.layout.zero >= 1;
}

BucketRule buckets(const PlanRequest& request, const StepGraph& graph) {
  BucketRule rule = megatron_buckets(graph, distributed_optimizer(request), request.options.bucket_parameters);
  if (request.layout.directions() > 1) rule.rank_with_copy = request.layout.pp - 1;
  return rule;
}

UserbufferTable wished_userbuffers(const PlanRequest& request) {
  switch (request.options.userbuffers.source) {
    case UserbufferSource::recipes:
      return recipe_userbuffers(std::string(kind_of_device(request.cluster.device.name)), request.layout.products,
                                request.model.hidden);
    case UserbufferSource::own:
      return request.options.userbuffers.own;
    case UserbufferSource::defaults:
      break;
  }
  return default_userbuffers();
}

// Decides what all three levels of data parallelism share.
Overlap with_layer_overlap(Overlap overlap, const PlanRequest& request, const StepGraph& graph) {
  const PolicyOptions& options = request.options;
  require_applicable(options, request.layout);
  overlap.beside.receives = receives_early(request);
  overlap.beside.linear_backward = request.layout.tp > 1;
  if (options.tp_comm_overlap) {
    const Cluster cluster(request.cluster);
    const CostModel cost(graph, cluster, request.profile, request.programs);
    overlap.partition.layers = userbuffer_cuts(graph, request.model, cost);
    overlap.movers.userbuffers = wished_userbuffers(request);
    overlap.beside.cut_transfers = overlap.beside.own_rows_first = overlap.order.parts_in_turn = true;
  }
  // One micro-batch has no other to hide behind.
  if (options.overlap_moe_expert_parallel_comm && request.layout.micro_batches() > 1) {
    overlap.beside.expert_parallel = overlap.weave.enabled = overlap.weave.within_layers = overlap.weave.pairs = true;
    overlap.weave.pairs_in_order = !options.delay_wgrad_compute;
  }
  return overlap;
}

}  // namespace

Overlap megatron_dist_overlap(const PlanRequest& request, const StepGraph& graph) {
  const BucketRule whole = megatron_whole_chunks(distributed_optimizer(request));
  return with_layer_overlap({.partition = {.buckets = bucket_sets(graph, whole)}}, request, graph);
}

Overlap megatron_grad_overlap(const PlanRequest& request, const StepGraph& graph) {
  return with_layer_overlap(
      {.partition = {.buckets = bucket_sets(graph, buckets(request, graph))}, .beside = {.reductions = true}}, request,
      graph);
}

// Forward reads the weights that the last iteration left, so it waits for each bucket where it first needs it.
Overlap megatron_param_overlap(const PlanRequest& request, const StepGraph& graph) {
  return with_layer_overlap({.partition = {.buckets = bucket_sets(graph, buckets(request, graph), true)},
                             .beside = {.reductions = true, .gathers = true}},
                            request, graph);
}

}  // namespace weft
