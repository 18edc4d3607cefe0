#include "plan/policy/megatron.hpp"

#include "plan/partition/buckets.hpp"

namespace weft {
namespace {

bool distributed_optimizer(const PlanRequest& request) {
  return request.layout.zero >= 1;
}

BucketRule buckets(const PlanRequest& request, const StepGraph& graph) {
  return megatron_buckets(graph, distributed_optimizer(request), request.options.bucket_parameters);
}

}  // namespace

Overlap megatron_dist_overlap(const PlanRequest& request, const StepGraph& graph) {
  const BucketRule whole = megatron_whole_chunks(distributed_optimizer(request));
  return {.buckets = bucket_sets(graph, whole), .receives = receives_early(request)};
}

Overlap megatron_grad_overlap(const PlanRequest& request, const StepGraph& graph) {
  return {
      .buckets = bucket_sets(graph, buckets(request, graph)), .reductions = true, .receives = receives_early(request)};
}

// Forward reads the weights that the last iteration left, so it waits for each bucket where it first needs it.
Overlap megatron_param_overlap(const PlanRequest& request, const StepGraph& graph) {
  return {.buckets = bucket_sets(graph, buckets(request, graph), true),
          .reductions = true,
          .gathers = true,
          .receives = receives_early(request)};
}

}  // namespace weft
