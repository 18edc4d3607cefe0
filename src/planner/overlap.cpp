#include "planner/overlap.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "cost/cost_model.hpp"
#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"
#include "plan/memory/place.hpp"
#include "planner/partition/buckets.hpp"
#include "planner/partition/cut.hpp"
#include "planner/schedule/blocks.hpp"
#include "planner/schedule/overlap_linear.hpp"
#include "planner/schedule/overlap_receives.hpp"
#include "planner/schedule/overlap_zero.hpp"
#include "planner/schedule/part_order.hpp"
#include "planner/schedule/reductions_in_gaps.hpp"
#include "planner/schedule/urgent_first.hpp"
#include "planner/schedule/weave.hpp"

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
                    std::any_of(op.writes.begin(), op.writes.end(),
                                [&](const Write& write) { return reduced[write.value.index()]; }));
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

// Layers with experts: what else is cut by rows waits for the whole of what these do.
bool is_of_experts(const Operation& op) {
  return op.role == Role::router || op.role == Role::gate || works_on_slots(op);
}

// Where experts of a layer are cut by capacity, nothing that works on their slots is cut by tokens.
void keep_axes_apart(const StepGraph& graph, LayerCuts& cuts) {
  std::set<std::tuple<ClassId, std::int32_t, Phase>> by_capacity;
  for (const bool look : {true, false}) {
    for (std::size_t i = 0; i < cuts.parts.size(); ++i) {
      const Operation& op = graph.operations[i];
      if (cuts.parts[i] == 1 || !works_on_slots(op)) continue;
      const std::tuple layer(op.rank_class, op.layer, op.phase);
      if (look && cuts.axes[i] == kCapacityAxis) by_capacity.insert(layer);
      if (!look && cuts.axes[i] == kTokenAxis && by_capacity.contains(layer)) cuts.parts[i] = 1;
    }
  }
}

// By operation of the graph: as the policy says, and rows.
LayerCuts parts_of(const StepGraph& graph, const Overlap& overlap) {
  const bool rows = overlap.forward_rows > 1 || overlap.backward_rows > 1;
  if (!rows && overlap.layers.parts.empty()) return {overlap.parts, {}};
  LayerCuts cuts = no_cuts(graph);
  if (!overlap.parts.empty()) cuts.parts = overlap.parts;
  for (std::size_t i = 0; i < cuts.parts.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (!op.per_micro_batch || !may_be_cut(graph, op) || (is_of_experts(op) && !overlap.expert_parallel)) continue;
    cuts.parts[i] = op.phase == Phase::forward ? overlap.forward_rows : overlap.backward_rows;
  }
  if (overlap.layers.parts.empty()) return cuts;
  cuts = both(cuts, overlap.layers);
  keep_axes_apart(graph, cuts);
  return cuts;
}

StepGraph partitioned(const StepGraph& graph, const Overlap& overlap) {
  const LayerCuts cuts = parts_of(graph, overlap);
  const auto merged_and_cut = [](const StepGraph& whole, const std::vector<MergeSet>& sets,
                                 const std::vector<std::int32_t>& parts, const std::vector<std::int32_t>& axes) {
    StepGraph merged = merge_operations(whole, sets);
    return parts.empty() ? merged : cut_operations(merged, whole, parts, axes);
  };
  if (overlap.substitutions.empty()) return merged_and_cut(graph, overlap.buckets, cuts.parts, cuts.axes);
  const SubstitutedGraph staged(graph, overlap.substitutions);
  const auto by_stage = [&](const std::vector<std::int32_t>& whole) {
    return whole.empty() ? whole : staged.by_stage(whole);
  };
  StepGraph result = merged_and_cut(staged.graph(), merge_sets_of_stages(staged, overlap.buckets), by_stage(cuts.parts),
                                    by_stage(cuts.axes));
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

void overlap_cut_transfers(Plan& plan) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.communication && op.communication->group == GroupKind::tp && is_part(op)) plan.issues[i].blocking = false;
  }
}

void overlap_expert_parallel(Plan& plan, const Overlap& overlap) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.communication || !op.per_micro_batch || op.communication->group != GroupKind::ep) continue;
    const Origin& origin = op.origins.front();
    const bool last = op.role == Role::expert_dispatch && op.phase == Phase::input_grad && origin.end == origin.of;
    plan.issues[i].blocking = overlap.wait_for_last_part && last;
  }
}

// As last_gradient_writers, for the order in which the blocks have the operations now: the first of a block counts as
// the one that the graph has first, and so on.
std::vector<std::int32_t> last_writers_in_order(const Plan& plan) {
  StepGraph renumbered = plan.graph;
  std::vector<OpId> number(plan.graph.operations.size());
  for (std::size_t i = 0; i < number.size(); ++i) number[i] = make_id<OpId>(i);
  for (const ClassPlan& c : plan.classes) {
    for (const IssueBlock& block : c.blocks) {
      std::vector<OpId> sorted = block.operations;
      std::sort(sorted.begin(), sorted.end());
      for (std::size_t i = 0; i < sorted.size(); ++i) number[block.operations[i].index()] = sorted[i];
    }
  }
  for (std::size_t i = 0; i < number.size(); ++i) renumbered.operations[number[i].index()] = plan.graph.operations[i];
  const std::vector<std::int32_t> of_renumbered = last_gradient_writers(renumbered);
  std::vector<std::int32_t> result(number.size());
  for (std::size_t i = 0; i < number.size(); ++i) result[i] = of_renumbered[number[i].index()];
  return result;
}

bool runs_beside_compute(const Operation& tensor_parallel, const Overlap& overlap) {
  return overlap.tensor_parallel || (overlap.linear_backward && is_of_linear_backward(tensor_parallel)) ||
         (overlap.cut_transfers && is_part(tensor_parallel));
}

}  // namespace

bool receives_early(const PlanRequest& request) {
  return request.layout.schedule == PipelineSchedule::interleaved;
}

double least_step_seconds(const PlanRequest& request, const StepGraph& graph, const Overlap& overlap) {
  StepGraph parts = partitioned(graph, overlap);
  const Cluster cluster(request.cluster);
  const CostModel cost(parts, cluster, request.profile, request.programs);
  choose_algorithms(parts, cost);
  std::vector<double> busy(parts.classes.size(), 0);
  for (const Operation& op : parts.operations) {
    const bool waited_for = op.communication && op.per_micro_batch && op.layer >= 0 &&
                            ((op.communication->group == GroupKind::tp && !runs_beside_compute(op, overlap)) ||
                             (op.communication->group == GroupKind::ep && !overlap.expert_parallel));
    if (op.communication && !waited_for) continue;
    busy[op.rank_class.index()] +=
        seconds(cost.alone(op)) * static_cast<double>(op.per_micro_batch ? parts.micro_batches : 1);
  }
  return *std::max_element(busy.begin(), busy.end());
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
  const CostModel cost(plan.graph, cluster, request.profile, request.programs);
  choose_algorithms(plan.graph, cost);
  issue_by_group(plan);
  block_on_transfers(plan);
  overlap_once_a_step(plan, overlap);
  if (overlap.tensor_parallel) overlap_tensor_parallel(plan);
  if (overlap.cut_transfers) overlap_cut_transfers(plan);
  if (overlap.expert_parallel) overlap_expert_parallel(plan, overlap);
  if (overlap.linear_backward) overlap_linear_backward(plan);
  order_blocks(plan, overlap.pairs);
  if (overlap.parts_in_turn) order_parts_in_turn(plan);
  if (!overlap.hides.empty()) move_weight_grads(plan, overlap.hides);
  if (overlap.urgent_first) {
    urgent_first(plan, cost, {.hold_back = overlap.hold_back, .postpone = !overlap.weave && !overlap.expert_parallel});
  } else if (overlap.reductions) {
    order_reductions(plan, overlap.hides.empty() ? last_gradient_writers(plan.graph) : last_writers_in_order(plan));
  }
  if (overlap.weave) {
    const auto weave = overlap.pairs ? weave_pairs : weave_blocks;
    weave(plan, cost,
          {.prefetch = overlap.gathers ? overlap.prefetch : -1,
           .gradient_buffers = overlap.reductions ? overlap.gradient_buffers : -1,
           .within_layers = overlap.weave_within_layers,
           .pairs_in_order = overlap.pairs_in_order,
           .visits = overlap.weave_visits});
  }
  if (overlap.linear_backward) gather_again_in_turn(plan);
  overlap_sharded_traffic(plan, {.gathers = overlap.gathers,
                                 .reductions = overlap.reductions,
                                 .prefetch = overlap.prefetch,
                                 .gradient_buffers = overlap.gradient_buffers});
  if (overlap.receives) overlap_receives(plan);
  if (overlap.reduce_in_gaps) reduce_in_gaps(plan, cost);
  Unfolded unfolded = place_values(plan);
  return {std::move(plan), std::move(unfolded)};
}

}  // namespace weft
