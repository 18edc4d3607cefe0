#include "planner/schedule/beside_compute.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"
#include "planner/schedule/blocks.hpp"
#include "planner/schedule/overlap_linear.hpp"

namespace weft {
namespace {

bool reduces_once_a_step(const Operation& op) {
  switch (op.role) {
    case Role::grad_reduce:
    case Role::shard_reduce:
    case Role::grad_exchange:
    case Role::grad_gather:
    case Role::node_reduce:
    case Role::node_gather:
      return !op.per_micro_batch;
    default:
      return false;
  }
}

// A replicas' reduction belongs to a bucket where the bucket's reduction reads it. On its own (ZeRO-2 and 3 with one
// set of shards, or without data parallelism) it comes after all gradients, as does that of tied embeddings.
std::vector<bool> in_a_bucket(const StepGraph& graph) {
  std::vector<bool> reduced(graph.values.size(), false), found;
  for (const Operation& op : graph.operations) {
    if (!reduces_once_a_step(op)) continue;
    for (const Read& read : op.reads) reduced[read.value.index()] = true;
  }
  for (const Operation& op : graph.operations) {
    found.push_back(op.role == Role::replica_reduce &&
                    std::any_of(op.writes.begin(), op.writes.end(),
                                [&](const Write& write) { return reduced[write.value.index()]; }));
  }
  return found;
}

void overlap_once_a_step(Plan& plan, const BesideCompute& beside) {
  const std::vector<bool> bucketed = in_a_bucket(plan.graph);
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.is_transfer() || op.per_micro_batch) continue;
    const bool reduces = reduces_once_a_step(op) || bucketed[i];
    if ((beside.reductions && reduces) || (beside.gathers && op.role == Role::param_gather)) {
      plan.issues[i].blocking = false;
    }
    // Behind tensor parallelism's own traffic it would hold its bucket back until backward has ended.
    if (beside.reductions && bucketed[i]) {
      plan.issues[i].queue = communication_queue(plan.classes[op.rank_class.index()], "tp replicas");
    }
  }
}

void overlap_tensor_parallel(Plan& plan) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.communication || !op.per_micro_batch || op.communication->group != GroupKind::tp) continue;
    if (op.layer >= 0 || is_part(op)) {
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

// A gather whose readers stay whole is waited for.
void overlap_gathers_with_own_rows(Plan& plan) {
  std::vector<bool> arrives_in_part(plan.graph.values.size(), false);
  for (const Operation& op : plan.graph.operations) {
    const std::optional<Operand> gathered = gathered_operand(op);
    if (!gathered || !is_part(op) || op.origins.front().axis != kOwnFirstAxis) continue;
    if (!is_own_piece(op.origins.front())) arrives_in_part[read_of(op, *gathered).index()] = true;
  }
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!gathers_rows_of_others(op)) continue;
    for (const Write& write : op.writes) {
      if (arrives_in_part[write.value.index()]) plan.issues[i].blocking = false;
    }
  }
}

void overlap_expert_parallel(Plan& plan, bool wait_for_last_part) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.communication || !op.per_micro_batch || op.communication->group != GroupKind::ep) continue;
    const Origin& origin = op.origins.front();
    const bool last = op.role == Role::expert_dispatch && op.phase == Phase::input_grad && origin.end == origin.of;
    plan.issues[i].blocking = wait_for_last_part && last;
  }
}

bool is_beside(const Operation& tensor_parallel, const BesideCompute& beside) {
  return beside.tensor_parallel || (beside.linear_backward && is_of_linear_backward(tensor_parallel)) ||
         (beside.cut_transfers && is_part(tensor_parallel)) ||
         (beside.own_rows_first && gathers_rows_of_others(tensor_parallel));
}

}  // namespace

bool is_waited_for(const Operation& op, const BesideCompute& beside) {
  if (!op.communication || !op.per_micro_batch || op.layer < 0) return false;
  return (op.communication->group == GroupKind::tp && !is_beside(op, beside)) ||
         (op.communication->group == GroupKind::ep && !beside.expert_parallel);
}

void let_run_beside_compute(Plan& plan, const BesideCompute& beside) {
  overlap_once_a_step(plan, beside);
  if (beside.tensor_parallel) overlap_tensor_parallel(plan);
  if (beside.cut_transfers) overlap_cut_transfers(plan);
  if (beside.own_rows_first) overlap_gathers_with_own_rows(plan);
  if (beside.expert_parallel) overlap_expert_parallel(plan, beside.wait_for_last_part);
  if (beside.linear_backward) overlap_linear_backward(plan);
}

}  // namespace weft
