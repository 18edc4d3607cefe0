#include "planner/policy/fsdp.hpp"

#include "base/error.hpp"
#include "planner/partition/units.hpp"

namespace weft {

Overlap fsdp_overlap(const PlanRequest& request, const StepGraph& graph) {
  const int prefetch = request.options.prefetch;
  if (prefetch < 0) fail("--prefetch {}: units to gather ahead are at least 0", prefetch);
  return {.partition = {.buckets = one_bucket_per_layer(graph)},
          .beside = {.reductions = true, .gathers = true, .receives = receives_early(request)},
          .held = {.prefetch = prefetch}};
}

}  // namespace weft
