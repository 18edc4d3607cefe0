#include "plan/memory/use.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "plan/late.hpp"
#include "plan/memory/lifetimes.hpp"

namespace weft {
namespace {

const char* term_of(const Value& value) {
  if (value.per_micro_batch) return "activations";
  switch (value.kind) {
    case ValueKind::parameter:
      return "weights";
    case ValueKind::gradient:
      return "gradients";
    case ValueKind::optimizer_state:
      return "optimizer state";
    default:
      return "other";
  }
}

// Says what the placements of one class are for.
struct Holdings {
  std::map<std::string, Bytes> terms;
  Bytes named;  // sum of the terms
};

// A value that stays in its block (or in a pool) is scratch, which shares its memory and has no term of its own.
bool is_scratch(const Value& value, const Lifetime& life) {
  return value.per_micro_batch && (!life.leaves_block || life.pooled);
}

// Returns the size of the stretch of memory that all frames of a class lie in.
Bytes extent_of_frames(const ClassPlan& plan, const std::vector<Bytes>& frame_sizes) {
  Bytes lowest{INT64_MAX}, highest;
  for (std::size_t f = 0; f < frame_sizes.size(); ++f) {
    for (const Bytes base : plan.frames[f].base) {
      lowest = std::min(lowest, base);
      highest = std::max(highest, base + frame_sizes[f]);
    }
  }
  return highest.value == 0 ? Bytes{} : highest - lowest;
}

std::vector<Holdings> find_holdings(const Plan& plan, const std::vector<Lifetime>& lifetimes,
                                    const std::vector<ValueId>& storage) {
  std::vector<Holdings> classes(plan.classes.size());
  std::vector<std::vector<Bytes>> frame_sizes(plan.classes.size());
  for (std::size_t c = 0; c < classes.size(); ++c) frame_sizes[c].resize(plan.classes[c].frames.size());
  const auto add = [&](std::size_t c, const char* term, Bytes bytes) {
    classes[c].terms[term] += bytes;
    classes[c].named += bytes;
  };
  for (std::size_t i = 0; i < plan.graph.values.size(); ++i) {
    const Value& value = plan.graph.values[i];
    if (storage[i].index() != i || is_scratch(value, lifetimes[i])) continue;
    const Bytes size = aligned(value.bytes());
    const Placement& place = plan.placements[i];
    if (place.frame >= 0) {
      Bytes& frame = frame_sizes[value.rank_class.index()][place.frame];
      frame = std::max(frame, place.offset + size);
    } else {
      add(value.rank_class.index(), term_of(value), size * place.copies);
    }
  }
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const Bytes frames = extent_of_frames(plan.classes[c], frame_sizes[c]);
    if (frames.value > 0) add(c, "activations", frames);
  }
  return classes;
}

// Knows where the operations of one class stand in its issue order: liveness is counted in these positions.
class IssuePositions {
 public:
  IssuePositions(const Plan& plan, std::size_t rank_class)
      : micro_batches_(static_cast<std::size_t>(plan.graph.micro_batches)), row_(plan.graph.operations.size()) {
    const ClassPlan& c = plan.classes[rank_class];
    std::size_t rows = 0;
    for (const IssueBlock& block : c.blocks) {
      for (const OpId op : block.operations) row_[op] = rows++;
    }
    table_.resize(rows * micro_batches_);
    for (const IssueSlot& slot : c.order) {
      for (const OpId op : operations_of(c, slot)) {
        const auto row = table_.begin() + static_cast<std::ptrdiff_t>(row_[op] * micro_batches_);
        if (!slot.micro_batch.valid()) {
          std::fill_n(row, micro_batches_, count_);
        } else {
          *(row + slot.micro_batch.value) = count_;
        }
        ++count_;
      }
    }
  }

  std::int32_t count() const { return count_; }
  // An operation that runs once a step has one position for every micro-batch.
  std::int32_t of(OpId op, MicroBatch micro_batch) const {
    return table_[row_[op] * micro_batches_ + micro_batch.index()];
  }

 private:
  std::size_t micro_batches_;
  IdVector<OpId, std::size_t> row_;  // of the operations of this class
  std::vector<std::int32_t> table_;  // [row][micro-batch]
  std::int32_t count_ = 0;
};

// A value is in use from the issue of its first writer to that of its last reader; `copy` is where it lies.
struct InUse {
  std::int32_t first = 0, last = 0, copy = 0;
};

std::vector<InUse> uses_of(const Plan& plan, std::size_t value, const Lifetime& life, const IssuePositions& positions) {
  std::vector<InUse> uses;
  const Placement& place = plan.placements[value];
  for (const MicroBatch mb : IdRange<MicroBatch>(plan.graph.micro_batches)) {
    const auto position = [&](OpId op) { return positions.of(op, mb); };
    std::int32_t held_over = -1;
    InUse use{INT32_MAX, 0, place.frame >= 0 ? mb.value : mb.value % place.copies};
    for (const OpId writer : life.writers) {
      use.first = std::min(use.first, position(writer));
      use.last = std::max(use.last, position(writer));
    }
    for (const OpId reader : life.readers) {
      if (!life.carried || !is_carried(plan, life.writers.front(), reader)) {
        use.last = std::max(use.last, position(reader));
        continue;
      }
      // It stays to the end of its pass, and in the next one until the late reader has it.
      use.last = positions.count() - 1;
      held_over = std::max(held_over, position(reader));
    }
    uses.push_back(use);
    if (held_over >= 0) uses.push_back({0, std::min(held_over, use.first - 1), use.copy});
  }
  const auto earlier = [](const InUse& a, const InUse& b) { return a.first < b.first; };
  if (!std::is_sorted(uses.begin(), uses.end(), earlier)) std::stable_sort(uses.begin(), uses.end(), earlier);
  return uses;
}

// Returns by issue position the bytes that hold something. Values whose memory is shared are never in use at the same
// position, but for a copy that a message is issued into while the micro-batch before it is still read: it counts once.
std::vector<std::int64_t> live_bytes(const Plan& plan, std::size_t rank_class, const IssuePositions& positions,
                                     const std::vector<Lifetime>& lifetimes, const std::vector<ValueId>& storage) {
  std::vector<std::int64_t> live(static_cast<std::size_t>(positions.count()) + 1, 0);
  std::vector<std::int32_t> taken_until;  // by copy
  for (std::size_t i = 0; i < plan.graph.values.size(); ++i) {
    const Value& value = plan.graph.values[i];
    if (value.rank_class.index() != rank_class || storage[i].index() != i) continue;
    const std::int64_t size = aligned(value.bytes()).value;
    if (!value.per_micro_batch) {
      live.front() += size * plan.placements[i].copies;
      continue;
    }
    if (lifetimes[i].writers.empty()) continue;
    taken_until.assign(plan.graph.micro_batches, -1);
    for (const InUse& use : uses_of(plan, i, lifetimes[i], positions)) {
      std::int32_t& until = taken_until[use.copy];
      const std::int32_t first = std::max(use.first, until + 1);
      if (first > use.last) continue;
      live[first] += size;
      live[use.last + 1] -= size;
      until = use.last;
    }
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  return live;
}

MemoryPeak find_peak(const ClassPlan& plan, const std::vector<std::int64_t>& live) {
  MemoryPeak peak;
  std::int64_t in_flight = 0;
  std::size_t position = 0;
  for (const IssueSlot& slot : plan.order) {
    const IssueBlock& block = block_of(plan, slot);
    if (block.kind == BlockKind::forward && slot.begin == 0) ++in_flight;
    for (std::size_t i = 0; i < operations_of(plan, slot).size(); ++i, ++position) {
      if (live[position] <= peak.live.value) continue;
      peak = {name_of(block), slot.micro_batch, in_flight, Bytes{live[position]}};
    }
    if (ends_pass(block.kind) && ends_block(plan, slot)) --in_flight;
  }
  return peak;
}

}  // namespace

std::vector<MemoryUse> memory_use(const Plan& plan) {
  const std::vector<Lifetime> lifetimes = find_lifetimes(plan);
  const std::vector<ValueId> storage = find_storage(plan);
  const std::vector<Holdings> holdings = find_holdings(plan, lifetimes, storage);
  std::vector<MemoryUse> result(plan.classes.size());
  for (std::size_t c = 0; c < result.size(); ++c) {
    std::map<std::string, Bytes> terms = holdings[c].terms;
    terms["scratch"] = plan.classes[c].memory - holdings[c].named;
    for (const auto& [name, bytes] : terms) {
      if (bytes.value > 0) result[c].terms.push_back({name, bytes});
    }
    std::stable_sort(result[c].terms.begin(), result[c].terms.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    const IssuePositions positions(plan, c);
    result[c].peak = find_peak(plan.classes[c], live_bytes(plan, c, positions, lifetimes, storage));
  }
  return result;
}

}  // namespace weft
