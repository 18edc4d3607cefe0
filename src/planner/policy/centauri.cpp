#include "planner/policy/centauri.hpp"

#include "planner/partition/choice_tree.hpp"
#include "planner/partition/row_choice.hpp"
#include "planner/partition/units.hpp"

namespace weft {
namespace {

// What was merged stays whole: what is cut travels by itself.
void leave_out_what_is_cut(std::vector<MergeSet>& buckets, const std::vector<std::int32_t>& parts) {
  if (parts.empty()) return;
  for (MergeSet& bucket : buckets) {
    std::erase_if(bucket.members, [&](OpId id) { return parts[id.index()] > 1; });
  }
  std::erase_if(buckets, [](const MergeSet& bucket) { return bucket.members.size() < 2; });
}

}  // namespace

Overlap centauri_overlap(const PlanRequest& request, const StepGraph& graph) {
  Overlap overlap{.partition = {.buckets = one_bucket_per_layer(graph)},
                  .beside = {.reductions = true, .gathers = true, .receives = receives_early(request)},
                  .held = {.prefetch = request.options.prefetch}};
  const Cluster cluster(request.cluster);
  const CostModel cost(graph, cluster, request.profile, request.programs);
  CheapestChoices cheapest = cheapest_choices(graph, cost);
  leave_out_what_is_cut(overlap.partition.buckets, cheapest.parts);
  overlap.partition.substitutions = std::move(cheapest.rules);
  overlap.partition.parts = std::move(cheapest.parts);
  if (request.layout.tp == 1) return overlap;
  const RowChoice rows = choose_rows(graph, cost);
  // Only where layers have traffic beside compute: elsewhere weight gradients that come later delay their reductions.
  overlap.weave = {.enabled = true, .within_layers = true};
  overlap.beside.tensor_parallel = true;
  overlap.partition.forward_rows = rows.forward;
  overlap.partition.backward_rows = rows.backward;
  return overlap;
}

}  // namespace weft
