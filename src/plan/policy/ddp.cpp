#include "plan/policy/ddp.hpp"

#include "plan/partition/buckets.hpp"
#include "plan/policy/overlap.hpp"

namespace weft {

Plan ddp_plan(const PlanRequest& request, const StepGraph& graph) {
  return overlapped_plan(request, graph, "ddp",
                         {.buckets = bucket_sets(graph, ddp_buckets(request.options.bucket_mib)), .reductions = true});
}

}  // namespace weft
