#include "planner/policy/nanotron.hpp"

#include "planner/partition/buckets.hpp"

namespace weft {

Overlap nanotron_overlap(const PlanRequest& request, const StepGraph& graph) {
  // Buckets of 25 MiB are counted on bf16 gradients, and their fp32 sums travel.
  constexpr double kBucketMib = 50;
  return {
      .partition = {.buckets = bucket_sets(graph, ddp_buckets(request.options.bucket_mib.value_or(kBucketMib)))},
      .beside = {.reductions = true, .receives = receives_early(request), .linear_backward = request.layout.tp > 1}};
}

}  // namespace weft
