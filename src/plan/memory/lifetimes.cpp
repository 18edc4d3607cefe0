#include "plan/memory/lifetimes.hpp"

#include <algorithm>

namespace weft {
namespace {

struct Spot {
  std::int32_t block = -1;
  std::int32_t position = 0;
};

std::vector<Spot> find_spots(const Plan& plan) {
  std::vector<Spot> spots(plan.graph.operations.size());
  for (const ClassPlan& c : plan.classes) {
    for (std::size_t b = 0; b < c.blocks.size(); ++b) {
      for (std::size_t i = 0; i < c.blocks[b].operations.size(); ++i) {
        spots[c.blocks[b].operations[i].index()] = {static_cast<std::int32_t>(b), static_cast<std::int32_t>(i)};
      }
    }
  }
  return spots;
}

bool runs_beside(const Plan& plan, OpId id) {
  const Issue& issue = plan.issues[id.index()];
  const ClassPlan& c = plan.classes[plan.graph.op(id).rank_class.index()];
  return c.queues[static_cast<std::size_t>(issue.queue)].kind != QueueKind::compute && !issue.blocking;
}

}  // namespace

std::vector<Lifetime> find_lifetimes(const Plan& plan) {
  std::vector<Lifetime> lifetimes(plan.graph.values.size());
  const std::vector<Spot> spots = find_spots(plan);
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const OpId id = make_id<OpId>(i);
    for (const ValueId value : plan.graph.op(id).writes) lifetimes[value.index()].writers.push_back(id);
    for (const Read& read : plan.graph.op(id).reads) lifetimes[read.value.index()].readers.push_back(id);
  }
  for (Lifetime& life : lifetimes) {
    if (life.writers.empty()) continue;
    const Spot written = spots[life.writers.front().index()];
    life.block = written.block;
    life.first = life.last = written.position;
    life.leaves_block = runs_beside(plan, life.writers.front());
    for (const OpId reader : life.readers) {
      const Spot read = spots[reader.index()];
      if (read.block != written.block || runs_beside(plan, reader)) life.leaves_block = true;
      life.last = std::max(life.last, read.position);
    }
  }
  return lifetimes;
}

std::vector<ValueId> find_storage(const Plan& plan) {
  std::vector<ValueId> storage;
  for (std::size_t i = 0; i < plan.graph.values.size(); ++i) storage.push_back(make_id<ValueId>(i));
  for (const Operation& op : plan.graph.operations) {
    if (!op.communication || op.per_micro_batch || op.reads.size() != op.writes.size()) continue;
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      const ValueId in = op.reads[i].value, out = op.writes[i];
      if (plan.graph.value(in).kind == ValueKind::scalar) continue;
      // A reduction ends where it began; a gather's own shard already lies inside the whole.
      if (op.role == Role::param_gather) {
        storage[in.index()] = out;
      } else {
        storage[out.index()] = in;
      }
    }
  }
  for (ValueId& value : storage) {
    while (storage[value.index()] != value) value = storage[value.index()];
  }
  return storage;
}

}  // namespace weft
