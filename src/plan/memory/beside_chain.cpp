#include "plan/memory/beside_chain.hpp"

#include <algorithm>

#include "graph/operation_part.hpp"
#include "plan/late.hpp"

namespace weft {

BesideChain::BesideChain(const Plan& plan)
    : plan_(plan),
      spots_(plan.graph.operations.size()),
      starts_after_(plan.graph.operations.size(), -1),
      ended_at_(plan.graph.operations.size(), kNever) {
  for (const ClassPlan& c : plan.classes) {
    for (const BlockId b : c.blocks.ids()) {
      std::int32_t position = 0;
      for (const OpId id : c.blocks[b].operations) spots_[id] = {b, position++};
    }
  }
  for (const Wait& wait : plan.waits) note(wait);
  const OpLists writers = writers_by_value(plan.graph), readers = readers_by_value(plan.graph);
  for (const ClassPlan& c : plan.classes) {
    for (const IssueBlock& block : c.blocks) {
      if (!block.operations.empty() && plan.graph.op(block.operations.front()).per_micro_batch) {
        look_at(c, block, writers, readers);
      }
    }
  }
}

bool BesideChain::runs_beside(OpId id) const {
  const Issue& issue = plan_.issues[id];
  const ClassPlan& c = plan_.classes[plan_.graph.op(id).rank_class];
  return c.queues[issue.queue].kind != QueueKind::compute && !issue.blocking;
}

bool BesideChain::same_pass(OpId writer, OpId reader) const {
  return same_block(writer, reader) && !is_carried(plan_, writer, reader);
}

std::int32_t BesideChain::length_of_block(OpId id) const {
  const ClassPlan& c = plan_.classes[plan_.graph.op(id).rank_class];
  return static_cast<std::int32_t>(c.blocks[spot(id).block].operations.size());
}

void BesideChain::note(const Wait& wait) {
  if (!same_block(wait.operation, wait.until)) return;
  if (wait.executions == 0 && !runs_beside(wait.until)) {
    std::int32_t& after = starts_after_[wait.operation];
    after = std::max(after, spot(wait.until).position);
  }
  if (!runs_beside(wait.operation)) {
    std::int32_t& ended = ended_at_[wait.until];
    ended = std::min(ended, spot(wait.operation).position + wait.executions * length_of_block(wait.until));
  }
}

// Goes through the block in issue order, and back: what an operation waits for stands before it. What does not is left
// out, which makes lifetimes longer and no place unsafe.
void BesideChain::look_at(const ClassPlan& c, const IssueBlock& block, const OpLists& writers, const OpLists& readers) {
  const StepGraph& graph = plan_.graph;
  IdVector<QueueId, OpId> in_queue(c.queues.size());
  for (const OpId id : block.operations) {
    if (!runs_beside(id)) continue;
    std::int32_t& after = starts_after_[id];
    const auto wait_for = [&](OpId before) {
      after = std::max(after, runs_beside(before) ? starts_after(before) : spot(before).position);
    };
    const Operation& op = graph.op(id);
    for (const Read& read : op.reads) {
      const Slice slice = read_slice_of(graph, op, read.value);
      for (const OpId writer : writers[read.value.index()]) {
        const bool same = read.distance == 0 && same_pass(writer, id) && graph.value(read.value).per_micro_batch;
        if (same && overlap(slice, slice_of(graph, graph.op(writer), read.value))) wait_for(writer);
      }
    }
    OpId& last = in_queue[plan_.issues[id].queue];
    if (last.valid()) wait_for(last);
    last = id;
  }
  std::fill(in_queue.begin(), in_queue.end(), OpId{});
  for (auto it = block.operations.rbegin(); it != block.operations.rend(); ++it) {
    const OpId id = *it;
    if (!runs_beside(id)) continue;
    std::int32_t& ended = ended_at_[id];
    const auto waits = [&](OpId behind) {
      ended = std::min(ended, runs_beside(behind) ? ended_at(behind) : spot(behind).position);
    };
    const Operation& op = graph.op(id);
    for (const Write& write : op.writes) {
      if (!graph.value(write.value).per_micro_batch) continue;
      const Slice slice = slice_of(graph, op, write.value);
      for (const OpId reader : readers[write.value.index()]) {
        if (same_pass(id, reader) && overlap(slice, read_slice_of(graph, graph.op(reader), write.value))) waits(reader);
      }
    }
    OpId& next = in_queue[plan_.issues[id].queue];
    if (next.valid() && ended == kNever) waits(next);  // what has a bound of its own keeps it: pools group by ends
    next = id;
  }
}

}  // namespace weft
