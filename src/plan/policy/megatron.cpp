#include "plan/policy/megatron.hpp"

#include "base/error.hpp"
#include "cost/cost_model.hpp"
#include "plan/partition/buckets.hpp"
#include "plan/partition/userbuffer_cuts.hpp"

namespace weft {
namespace {

bool distributed_optimizer(const PlanRequest& request) {
  return request.layout.zero >= 1;
}

BucketRule buckets(const PlanRequest& request, const StepGraph& graph) {
  return megatron_buckets(graph, distributed_optimizer(request), request.options.bucket_parameters);
}

void require_sequence_parallel(const Layout& layout) {
  if (layout.tp == 1) fail("--tp-comm-overlap: there is no tensor parallelism; give --tp");
  if (!layout.sequence_parallel) fail("--tp-comm-overlap: needs --sequence-parallel, as in Megatron");
}

void require_pairs(const Layout& layout) {
  const char* const flag = "--overlap-moe-expert-parallel-comm";
  if (layout.ep == 1) fail("{}: there is no expert parallelism; give --ep", flag);
  if (layout.pp > 1 && layout.vpp == 1) fail("{}: a pipeline needs --vpp for it, as in Megatron", flag);
  if (layout.recompute == Recompute::full) fail("{}: is not for --recompute full, as in Megatron", flag);
  if (layout.zero > 1) fail("{}: is for --zero 0 and 1", flag);
}

// What all three levels of data parallelism share.
Overlap with_layer_overlap(Overlap overlap, const PlanRequest& request, const StepGraph& graph) {
  const PolicyOptions& options = request.options;
  overlap.receives = receives_early(request);
  overlap.linear_backward = request.layout.tp > 1;
  if (options.tp_comm_overlap) {
    require_sequence_parallel(request.layout);
    const Cluster cluster(request.cluster);
    const CostModel cost(graph, cluster, request.profile);
    overlap.layers = userbuffer_cuts(graph, request.model, cost);
    overlap.cut_transfers = overlap.parts_in_turn = true;
  }
  if (options.delay_wgrad_compute && !options.overlap_moe_expert_parallel_comm) {
    fail("--delay-wgrad-compute: needs --overlap-moe-expert-parallel-comm, as in Megatron");
  }
  if (options.overlap_moe_expert_parallel_comm) {
    require_pairs(request.layout);
    overlap.expert_parallel = overlap.weave = overlap.weave_within_layers = true;
    overlap.pairs = request.layout.micro_batches() > 1;
    overlap.pairs_in_order = !options.delay_wgrad_compute;
  }
  return overlap;
}

}  // namespace

Overlap megatron_dist_overlap(const PlanRequest& request, const StepGraph& graph) {
  const BucketRule whole = megatron_whole_chunks(distributed_optimizer(request));
  return with_layer_overlap({.buckets = bucket_sets(graph, whole)}, request, graph);
}

Overlap megatron_grad_overlap(const PlanRequest& request, const StepGraph& graph) {
  return with_layer_overlap({.buckets = bucket_sets(graph, buckets(request, graph)), .reductions = true}, request,
                            graph);
}

// Forward reads the weights that the last iteration left, so it waits for each bucket where it first needs it.
Overlap megatron_param_overlap(const PlanRequest& request, const StepGraph& graph) {
  return with_layer_overlap(
      {.buckets = bucket_sets(graph, buckets(request, graph), true), .reductions = true, .gathers = true}, request,
      graph);
}

}  // namespace weft
