#include "planner/policy/ddp.hpp"

#include "planner/partition/buckets.hpp"

namespace weft {

Overlap ddp_overlap(const PlanRequest& request, const StepGraph& graph) {
  return {.partition = {.buckets = bucket_sets(graph, ddp_buckets(request.options.bucket_mib))},
          .beside = {.reductions = true, .receives = receives_early(request)}};
}

}  // namespace weft
