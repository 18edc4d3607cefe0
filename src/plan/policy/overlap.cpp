#include "plan/policy/overlap.hpp"

#include <algorithm>

#include "cost/cost_model.hpp"
#include "graph/operation_part.hpp"
#include "plan/memory/place.hpp"
#include "plan/partition/buckets.hpp"
#include "plan/partition/cut.hpp"
#include "plan/partition/substitute.hpp"
#include "plan/schedule/blocks.hpp"
#include "plan/schedule/overlap_receives.hpp"
#include "plan/schedule/overlap_zero.hpp"
#include "plan/schedule/urgent_first.hpp"
#include "plan/schedule/weave.hpp"

namespace weft {
namespace {

// A replicas' reduction belongs to a bucket where the bucket's reduction reads it. On its own (ZeRO-2 and 3, or without
// data parallelism) it comes after all gradients, as does that of tied embeddings.
std::vector<bool> in_a_bucket(const StepGraph& graph) {
  std::vector<bool> reduced(graph.values.size(), false), found;
  for (const Operation& op : graph.operations) {
    if (op.role != Role::grad_reduce || op.per_micro_batch) continue;
    for (const Read& read : op.reads) reduced[read.value.index()] = true;
  }
  for (const Operation& op : graph.operations) {
    found.push_back(op.role == Role::replica_reduce &&
                    std::any_of(op.writes.begin(), op.writes.end(), [&](ValueId v) { return reduced[v.index()]; }));
  }
  return found;
}

void overlap_once_a_step(Plan& plan, const Overlap& overlap) {
  const std::vector<bool> bucketed = in_a_bucket(plan.graph);
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.is_transfer() || op.per_micro_batch) continue;
    const bool reduces = op.role == Role::grad_reduce || bucketed[i];
    if ((overlap.reductions && reduces) || (overlap.gathers && op.role == Role::param_gather)) {
      plan.issues[i].blocking = false;
    }
    // Behind tensor parallelism's own traffic it would hold its bucket back until backward has ended.
    if (overlap.reductions && bucketed[i]) {
      plan.issues[i].queue = communication_queue(plan.classes[op.rank_class.index()], "tp replicas");
    }
  }
}

// By operation of the graph: as the policy says, and rows.
std::vector<std::int32_t> parts_of(const StepGraph& graph, const Overlap& overlap) {
  std::vector<std::int32_t> parts = overlap.parts;
  if (overlap.forward_rows == 1 && overlap.backward_rows == 1) return parts;
  if (parts.empty()) parts.assign(graph.operations.size(), 1);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (!op.per_micro_batch || !may_be_cut(graph, op)) continue;
    parts[i] = op.phase == Phase::forward ? overlap.forward_rows : overlap.backward_rows;
  }
  return parts;
}

StepGraph partitioned(const StepGraph& graph, const Overlap& overlap) {
  const std::vector<std::int32_t> parts = parts_of(graph, overlap);
  const auto merged_and_cut = [](const StepGraph& whole, const std::vector<MergeSet>& sets,
                                 const std::vector<std::int32_t>& cuts) {
    StepGraph merged = merge_operations(whole, sets);
    return cuts.empty() ? merged : cut_operations(merged, whole, cuts);
  };
  if (overlap.substitutions.empty()) return merged_and_cut(graph, overlap.buckets, parts);
  const SubstitutedGraph staged(graph, overlap.substitutions);
  StepGraph result = merged_and_cut(staged.graph(), staged.merge_sets(overlap.buckets), staged.by_stage(parts));
  staged.name_origins(result);
  return result;
}

void overlap_tensor_parallel(Plan& plan) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.communication && op.per_micro_batch && op.communication->group == GroupKind::tp && op.layer >= 0) {
      plan.issues[i].blocking = false;
    }
  }
}

}  // namespace

bool receives_early(const PlanRequest& request) {
  return request.layout.schedule == PipelineSchedule::interleaved;
}

UnfoldedPlan overlapped_plan(const PlanRequest& request, const StepGraph& graph, std::string name,
                             const Overlap& overlap) {
  Plan plan;
  plan.policy = std::move(name);
  plan.model = request.model;
  plan.cluster = request.cluster;
  plan.layout = request.layout;
  plan.graph = partitioned(graph, overlap);
  const Cluster cluster(request.cluster);
  const CostModel cost(plan.graph, cluster, request.profile);
  choose_algorithms(plan.graph, cost);
  issue_by_group(plan);
  block_on_transfers(plan);
  overlap_once_a_step(plan, overlap);
  if (overlap.tensor_parallel) overlap_tensor_parallel(plan);
  order_blocks(plan, overlap.pairs);
  if (overlap.urgent_first) {
    urgent_first(plan, cost, {.hold_back = overlap.hold_back, .postpone = !overlap.weave});
  } else if (overlap.reductions) {
    order_reductions(plan, last_gradient_writers(plan.graph));
  }
  if (overlap.weave) {
    const auto weave = overlap.pairs ? weave_pairs : weave_blocks;
    weave(plan, cost,
          {.prefetch = overlap.gathers ? overlap.prefetch : -1,
           .gradient_buffers = overlap.reductions ? overlap.gradient_buffers : -1,
           .within_layers = overlap.weave_within_layers,
           .visits = overlap.weave_visits});
  }
  overlap_sharded_traffic(plan, {.gathers = overlap.gathers,
                                 .reductions = overlap.reductions,
                                 .prefetch = overlap.prefetch,
                                 .gradient_buffers = overlap.gradient_buffers});
  if (overlap.receives) overlap_receives(plan);
  Unfolded unfolded = place_values(plan);
  return {std::move(plan), std::move(unfolded)};
}

}  // namespace weft
