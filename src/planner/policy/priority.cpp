#include "planner/policy/priority.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "planner/partition/urgent_parts.hpp"

namespace weft {

Overlap priority_overlap(const PlanRequest& request, const StepGraph& graph) {
  std::optional<Bytes> part;
  if (const auto mib = request.options.part_mib) {
    if (*mib <= 0) fail("--part-mib {}: the size of a part is above 0", *mib);
    part = Bytes{std::max<std::int64_t>(1, static_cast<std::int64_t>(*mib * 1024 * 1024))};
  }
  const Cluster cluster(request.cluster);
  UrgentParts parts = urgent_parts(graph, CostModel(graph, cluster, request.profile, request.programs), part);
  return {.partition = {.buckets = std::move(parts.sets), .parts = std::move(parts.parts)},
          .beside = {.reductions = true, .gathers = true, .receives = receives_early(request)},
          .held = {.prefetch = request.options.prefetch},
          .order = {.urgent_first = true}};
}

}  // namespace weft
