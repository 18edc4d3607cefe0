#include "plan/policy/centauri.hpp"

#include "plan/partition/choice_tree.hpp"
#include "plan/partition/row_choice.hpp"
#include "plan/partition/units.hpp"

namespace weft {

Overlap centauri_overlap(const PlanRequest& request, const StepGraph& graph) {
  Overlap overlap{.buckets = one_bucket_per_layer(graph),
                  .reductions = true,
                  .gathers = true,
                  .prefetch = request.options.prefetch,
                  .receives = receives_early(request),
                  .weave = true,
                  .weave_within_layers = true};
  const Cluster cluster(request.cluster);
  const CostModel cost(graph, cluster, request.profile, request.programs);
  overlap.substitutions = cheapest_rules(graph, cost);
  if (request.layout.tp == 1) return overlap;
  const RowChoice rows = choose_rows(graph, cost);
  overlap.tensor_parallel = true;
  overlap.forward_rows = rows.forward;
  overlap.backward_rows = rows.backward;
  return overlap;
}

}  // namespace weft
