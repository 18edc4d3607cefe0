#include "plan/late.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "graph/op_lists.hpp"

namespace weft {

bool has_late(const Plan& plan) {
  return std::any_of(plan.issues.begin(), plan.issues.end(), [](const Issue& issue) { return issue.late; });
}

LateSummary summarize_late(const Plan& plan) {
  LateSummary summary;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    const bool is_weight_grad = op.phase == Phase::weight_grad && !op.is_transfer();
    summary.all_weight_grads += is_weight_grad ? 1 : 0;
    if (!plan.issues[id].late) continue;
    ++summary.operations;
    summary.weight_grads += is_weight_grad ? 1 : 0;
  }
  if (summary.operations == 0) return summary;
  const OpLists writers = writers_by_value(plan.graph), readers = readers_by_value(plan.graph);
  IdVector<ClassId, Bytes> held(plan.classes.size());
  for (const ValueId value : plan.graph.values.ids()) {
    const Value& of = plan.graph.value(value);
    const std::span<const OpId> all = readers[value.index()];
    if (!of.per_micro_batch || writers[value.index()].empty()) continue;
    const OpId writer = writers[value.index()].front();
    if (std::any_of(all.begin(), all.end(), [&](OpId reader) { return is_carried(plan, writer, reader); })) {
      held[of.rank_class] += of.bytes();
    }
  }
  summary.held = *std::max_element(held.begin(), held.end());
  return summary;
}

bool may_be_late(const Operation& op) {
  return !op.per_micro_batch || op.phase == Phase::weight_grad;
}

namespace {

std::string in_words(const Plan& plan, OpId id) {
  const Operation& op = plan.graph.op(id);
  return fmt::format("{}: '{}'", plan.graph.classes[op.rank_class].name, describe(op));
}

void check_members(const Plan& plan) {
  std::map<std::int32_t, OpId> first;  // by transfer
  for (const OpId id : plan.graph.operations.ids()) {
    const auto& communication = plan.graph.op(id).communication;
    if (!communication || communication->transfer < 0) continue;
    const OpId other = first.try_emplace(communication->transfer, id).first->second;
    if (plan.issues[id].late == plan.issues[other].late) continue;
    fail("{} and {} are one transfer, but only one of them is late", in_words(plan, other), in_words(plan, id));
  }
}

void check_reads(const Plan& plan) {
  const OpLists writers = writers_by_value(plan.graph);
  for (const ValueId value : plan.graph.values.ids()) {
    for (const OpId writer : writers[value.index()]) {
      const OpId first = writers[value.index()].front();
      if (plan.issues[writer].late == plan.issues[first].late) continue;
      fail("{} and {} both write '{}', but only one of them is late", in_words(plan, first), in_words(plan, writer),
           plan.graph.value(value).name);
    }
  }
  for (const OpId id : plan.graph.operations.ids()) {
    for (const Read& read : plan.graph.op(id).reads) {
      if (writers[read.value.index()].empty()) continue;
      const OpId writer = writers[read.value.index()].front();
      const std::int32_t passes = passes_between(plan, writer, id, read.distance);
      if (passes == 0 || passes == 1) continue;
      fail("{} reads '{}' {}; the late operation is {}, and a read reaches back one pass or none", in_words(plan, id),
           plan.graph.value(read.value).name,
           passes < 0 ? "before the pass that writes it" : fmt::format("{} passes after it is written", passes),
           in_words(plan, passes < 0 ? writer : id));
    }
  }
}

// Which rows of the experts' slots are in use is data that the next gate of the layer replaces.
void check_experts(const Plan& plan) {
  for (const ClassPlan& c : plan.classes) {
    std::set<std::int32_t> has_passed_gate;  // layers
    for (const IssueSlot& slot : c.order) {
      for (const OpId id : operations_of(c, slot)) {
        const Operation& op = plan.graph.op(id);
        if (op.role == Role::gate && op.phase == Phase::forward) has_passed_gate.insert(op.layer);
        if (!plan.issues[id].late || !is_late_before_gate(op) || !has_passed_gate.contains(op.layer)) continue;
        fail("{} is late and issued behind the next gate of its layer, which replaces the experts' slots",
             in_words(plan, id));
      }
    }
  }
}

}  // namespace

bool is_late_before_gate(const Operation& op) {
  return op.phase == Phase::weight_grad && (op.role == Role::expert_in || op.role == Role::expert_out);
}

void check_late(const Plan& plan) {
  if (!has_late(plan)) return;
  if (plan.graph.micro_batches != 1) {
    fail("the plan has late operations and {} micro-batches; late operations are for steps of one",
         plan.graph.micro_batches);
  }
  for (const OpId id : plan.graph.operations.ids()) {
    if (!plan.issues[id].late || may_be_late(plan.graph.op(id))) continue;
    fail("{} is late; only weight gradients and what a step does once may be", in_words(plan, id));
  }
  for (const Wait& wait : plan.waits) {
    for (const OpId id : {wait.operation, wait.until}) {
      if (plan.issues[id].late) fail("{} is late and named by an explicit wait", in_words(plan, id));
    }
  }
  check_members(plan);
  check_reads(plan);
  check_experts(plan);
}

}  // namespace weft
