#include "plan/memory/use.hpp"

#include <algorithm>
#include <map>

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

// What the blocks of one class hold.
struct Holdings {
  std::map<std::string, Bytes> terms;
  Bytes named;                 // sum of the terms
  Bytes persistent;            // once a step
  std::vector<Bytes> kept;     // by block: what one execution leaves for another block
  std::vector<Bytes> scratch;  // by block: the stretch its own values lie in
};

// A value that stays in its block (or in a pool) is scratch: the memory is shared, so only its extent counts.
std::vector<Holdings> find_holdings(const Plan& plan) {
  const std::vector<Lifetime> lifetimes = find_lifetimes(plan);
  const std::vector<ValueId> storage = find_storage(plan);
  std::vector<Holdings> classes(plan.classes.size());
  std::vector<std::vector<std::pair<Bytes, Bytes>>> extents(plan.classes.size());  // by block: lowest, highest
  for (std::size_t c = 0; c < classes.size(); ++c) {
    classes[c].kept.resize(plan.classes[c].blocks.size());
    classes[c].scratch.resize(plan.classes[c].blocks.size());
    extents[c].assign(plan.classes[c].blocks.size(), {Bytes{INT64_MAX}, Bytes{0}});
  }
  std::vector<std::vector<Bytes>> frame_end(plan.classes.size());  // by frame: its size
  for (std::size_t c = 0; c < classes.size(); ++c) frame_end[c].resize(plan.classes[c].frames.size());
  for (std::size_t i = 0; i < plan.graph.values.size(); ++i) {
    const Value& value = plan.graph.values[i];
    if (storage[i].index() != i) continue;
    Holdings& own = classes[value.rank_class.index()];
    const Bytes size = aligned(value.bytes());
    const Lifetime& life = lifetimes[i];
    if (value.per_micro_batch && (!life.leaves_block || life.pooled)) {
      if (life.block < 0) continue;
      auto& [lowest, highest] = extents[value.rank_class.index()][static_cast<std::size_t>(life.block)];
      lowest = std::min(lowest, plan.placements[i].offset);
      highest = std::max(highest, plan.placements[i].offset + size);
      continue;
    }
    const Placement& place = plan.placements[i];
    if (place.frame >= 0) {
      Bytes& end = frame_end[value.rank_class.index()][static_cast<std::size_t>(place.frame)];
      end = std::max(end, place.offset + size);
      own.kept[static_cast<std::size_t>(life.block)] += size;
      continue;
    }
    own.terms[term_of(value)] += size * plan.placements[i].copies;
    own.named += size * plan.placements[i].copies;
    if (!value.per_micro_batch || plan.placements[i].waits) {
      // What only transfers hold on to has as many places as it waits for, whatever is in flight.
      own.persistent += size * plan.placements[i].copies;
    } else if (life.block >= 0) {
      own.kept[static_cast<std::size_t>(life.block)] += size;
    }
  }
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (std::size_t b = 0; b < extents[c].size(); ++b) {
      classes[c].scratch[b] = std::max(Bytes{0}, extents[c][b].second - extents[c][b].first);
    }
    Bytes lowest{INT64_MAX}, highest;
    for (std::size_t f = 0; f < frame_end[c].size(); ++f) {
      for (const Bytes base : plan.classes[c].frames[f].base) {
        lowest = std::min(lowest, base);
        highest = std::max(highest, base + frame_end[c][f]);
      }
    }
    if (highest.value == 0) continue;
    classes[c].terms["activations"] += highest - lowest;
    classes[c].named += highest - lowest;
  }
  return classes;
}

// Blocks come in pairs, forward and backward of a model chunk (order_blocks): what either leaves is gone when the
// backward has ended.
MemoryPeak find_peak(const ClassPlan& plan, const Holdings& holds) {
  MemoryPeak peak;
  const auto is_backward = [&](std::size_t block) { return block % 2 == 1 && block + 1 < plan.blocks.size(); };
  std::int64_t running = 0;
  Bytes kept = holds.persistent, scratch;
  for (const Slot& slot : plan.order) {
    const auto block = static_cast<std::size_t>(slot.block);
    const bool once = slot.micro_batch < 0;
    if (slot.begin == 0) {
      kept += holds.kept[block];
      scratch += holds.scratch[block];
      if (!once && !is_backward(block)) ++running;
    }
    if (kept + scratch > peak.live) peak = {plan.blocks[block].name, slot.micro_batch, running, kept + scratch};
    if (!ends_block(plan, slot)) continue;
    scratch -= holds.scratch[block];
    if (!once && is_backward(block)) {
      kept -= holds.kept[block] + holds.kept[block - 1];
      --running;
    } else if (once) {
      kept -= holds.kept[block];
    }
  }
  return peak;
}

}  // namespace

std::vector<MemoryUse> memory_use(const Plan& plan) {
  const std::vector<Holdings> holdings = find_holdings(plan);
  std::vector<MemoryUse> result(plan.classes.size());
  for (std::size_t c = 0; c < result.size(); ++c) {
    std::map<std::string, Bytes> terms = holdings[c].terms;
    terms["scratch"] = plan.classes[c].memory - holdings[c].named;
    for (const auto& [name, bytes] : terms) {
      if (bytes.value > 0) result[c].terms.push_back({name, bytes});
    }
    std::stable_sort(result[c].terms.begin(), result[c].terms.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    result[c].peak = find_peak(plan.classes[c], holdings[c]);
  }
  return result;
}

}  // namespace weft
