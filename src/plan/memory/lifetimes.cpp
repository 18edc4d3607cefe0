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

// Whether it runs beside the chain of compute and blocking transfers.
bool runs_beside(const Plan& plan, OpId id) {
  const Issue& issue = plan.issues[id.index()];
  const ClassPlan& c = plan.classes[plan.graph.op(id).rank_class.index()];
  return c.queues[static_cast<std::size_t>(issue.queue)].kind != QueueKind::compute && !issue.blocking;
}

class WaitBounds {
 public:
  WaitBounds(const Plan& plan, const std::vector<Spot>& spots) : plan_(plan), spots_(spots) {
    starts_after_.assign(plan.graph.operations.size(), -1);
    ended_at_.assign(plan.graph.operations.size(), kNever);
    for (const Wait& wait : plan.waits) note(wait);
  }

  void apply(Lifetime& life) const {
    if (life.writers.size() != 1 || life.readers.empty() || !life.leaves_block || life.block < 0) return;
    const OpId writer = life.writers.front();
    const auto elsewhere = [&](OpId reader) { return spots_[reader.index()].block != life.block; };
    if (std::any_of(life.readers.begin(), life.readers.end(), elsewhere)) return;
    runs_beside(plan_, writer) ? fetched_ahead(life, writer) : read_beside(life);
  }

 private:
  static constexpr std::int32_t kNever = INT32_MAX;

  void note(const Wait& wait) {
    const Spot &waiting = spots_[wait.operation.index()], &until = spots_[wait.until.index()];
    if (waiting.block != until.block || until.block < 0) return;
    if (wait.executions == 0 && !runs_beside(plan_, wait.until)) {
      std::int32_t& after = starts_after_[wait.operation.index()];
      after = std::max(after, until.position);
    }
    if (!runs_beside(plan_, wait.operation)) {
      std::int32_t& ended = ended_at_[wait.until.index()];
      ended = std::min(ended, waiting.position + wait.executions * length_of_block(wait.until));
    }
  }

  std::int32_t length_of_block(OpId id) const {
    const ClassPlan& c = plan_.classes[plan_.graph.op(id).rank_class.index()];
    return static_cast<std::int32_t>(c.blocks[static_cast<std::size_t>(spots_[id.index()].block)].operations.size());
  }

  // Written by a transfer that waits for an operation of the chain, read in the chain: scratch from there on.
  void fetched_ahead(Lifetime& life, OpId writer) const {
    const auto beside = [&](OpId reader) { return runs_beside(plan_, reader); };
    const std::int32_t after = starts_after_[writer.index()];
    if (after < 0 || std::any_of(life.readers.begin(), life.readers.end(), beside)) return;
    life.first = std::min(life.first, after + 1);
    life.leaves_block = false;
  }

  // Written in the chain, read by transfers for which the chain waits before it writes the same again.
  void read_beside(Lifetime& life) const {
    std::int32_t free = life.last + 1;
    for (const OpId reader : life.readers) {
      if (runs_beside(plan_, reader)) free = std::max(free, ended_at_[reader.index()]);
    }
    if (free == kNever || free > life.first + length_of_block(life.writers.front())) return;
    life.last = free - 1;
    life.pooled = true;
  }

  const Plan& plan_;
  const std::vector<Spot>& spots_;
  std::vector<std::int32_t> starts_after_;  // by operation: the last position of the chain that it waits for; -1: none
  std::vector<std::int32_t> ended_at_;      // by operation: the first position of the chain that waits for it
};

}  // namespace

std::vector<Lifetime> find_lifetimes(const Plan& plan) {
  std::vector<Lifetime> lifetimes(plan.graph.values.size());
  const std::vector<Spot> spots = find_spots(plan);
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const OpId id = make_id<OpId>(i);
    for (const ValueId value : plan.graph.op(id).writes) lifetimes[value.index()].writers.push_back(id);
    for (const Read& read : plan.graph.op(id).reads) lifetimes[read.value.index()].readers.push_back(id);
  }
  const WaitBounds bounds(plan, spots);
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    Lifetime& life = lifetimes[i];
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
    if (plan.graph.values[i].per_micro_batch) bounds.apply(life);
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
