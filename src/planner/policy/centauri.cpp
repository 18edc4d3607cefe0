#include "planner/memory_needs.hpp"
#include "planner/policy/centauri.hpp"

#include <optional>
#include <utility>

#include "graph/substitute.hpp"
#include "planner/partition/choice_tree.hpp"
#include "planner/partition/row_choice.hpp"
#include "planner/partition/units.hpp"
#include "planner/passes.hpp"
#include "planner/policy/fsdp.hpp"
#include "planner/policy/megatron.hpp"

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

Overlap cheapest_leaves(const PlanRequest& request, const StepGraph& graph) {
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

struct SimulatedStep {
  double seconds = 0;
  bool fits = true;
};

SimulatedStep simulated_step(const PlanRequest& request, const SharedGraph& graph, const Overlap& overlap) {
  const WholePlan made = overlapped_plan(request, graph, "centauri", overlap);
  return {request.search.step_seconds(made), judge_memory(made.plan(), request.profile).fits};
}

// The same with the traffic of layers whole; nothing where it is whole already.
std::optional<Overlap> with_whole_layer_traffic(const StepGraph& graph, Overlap overlap) {
  bool changed = false;
  for (std::size_t i = 0; i < overlap.partition.substitutions.size(); ++i) {
    TransferRule& rule = overlap.partition.substitutions[i];
    if (rule == Substitution::none || !is_layer_traffic(graph.operations[i])) continue;
    rule = {};
    changed = true;
  }
  return changed ? std::optional(std::move(overlap)) : std::nullopt;
}

}  // namespace

Overlap centauri_overlap(const PlanRequest& request, const StepGraph& graph) {
  Overlap best = cheapest_leaves(request, graph);
  if (request.search.step_seconds == nullptr) return best;
  std::vector<Overlap> others;
  if (auto whole = with_whole_layer_traffic(graph, best)) others.push_back(std::move(*whole));
  if (request.layout.tp == 1 && request.layout.pp == 1) {
    for (const auto& decide : {fsdp_overlap, megatron_param_overlap}) others.push_back(decide(request, graph));
  }
  if (others.empty()) return best;
  const SharedGraph shared(graph);
  SimulatedStep of_best = simulated_step(request, shared, best);
  for (const Overlap& other : others) {
    const SimulatedStep step = simulated_step(request, shared, other);
    const bool better = step.fits == of_best.fits ? step.seconds < of_best.seconds : step.fits;
    if (!better) continue;
    best = other;
    of_best = step;
  }
  return best;
}

}  // namespace weft
