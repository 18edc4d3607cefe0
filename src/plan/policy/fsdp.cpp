#include "plan/policy/fsdp.hpp"

#include "base/error.hpp"
#include "plan/partition/units.hpp"
#include "plan/policy/overlap.hpp"

namespace weft {

Plan fsdp_plan(const PlanRequest& request, const StepGraph& graph) {
  const int prefetch = request.options.prefetch;
  if (prefetch < 0) fail("--prefetch {}: units to gather ahead are at least 0", prefetch);
  return overlapped_plan(
      request, graph, "fsdp",
      {.buckets = one_bucket_per_layer(graph), .reductions = true, .gathers = true, .prefetch = prefetch});
}

}  // namespace weft
