#include "plan/memory/place.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "plan/happens_before.hpp"
#include "plan/late.hpp"
#include "plan/memory/beside_chain.hpp"
#include "plan/memory/frames.hpp"
#include "plan/memory/lifetimes.hpp"
#include "plan/memory/pool.hpp"
#include "plan/unfold.hpp"
#include "plan/woven_passes.hpp"

namespace weft {
namespace {

class Placer {
 public:
  // With `may_wait`, what only transfers hold on to gets two copies, and its writer waits for them.
  Placer(Plan& plan, const Unfolded& unfolded, bool may_wait)
      : plan_(plan),
        may_wait_(may_wait),
        unfolded_(unfolded),
        beside_(plan),
        lifetimes_(find_lifetimes(plan)),
        storage_(find_storage(plan)),
        landmarks_(unfolded_, find_run_order(unfolded_).order) {
    plan_.placements.assign(plan_.graph.values.size(), {});
  }

  void run() {
    IdVector<ClassId, std::vector<ValueId>> by_class(plan_.classes.size());
    for (const ValueId id : plan_.graph.values.ids()) by_class[plan_.graph.value(id).rank_class].push_back(id);
    for (const ClassId c : by_class.ids()) place_class(c, by_class[c]);
    for (std::size_t i = 0; i < storage_.size(); ++i) plan_.placements[i] = plan_.placements[storage_[i].index()];
  }

 private:
  void place_class(ClassId c, const std::vector<ValueId>& values) {
    before_.reset();
    std::int64_t top = 0;
    std::map<BlockId, std::vector<ValueId>> pools, scratch;  // by block
    const auto put = [&](ValueId id, std::int32_t copies, bool waits = false) {
      plan_.placements[id] = {Bytes{top}, copies, waits};
      const std::int64_t size =
          checked_product({aligned(plan_.graph.value(id).bytes()).value, copies}, "memory of the plan");
      top = checked_sum({top, size}, "memory of the plan");
    };
    for (const ValueId id : values) {
      if (storage_[id.index()] == id && !plan_.graph.value(id).per_micro_batch) put(id, 1);
    }
    top = place_frames(plan_, c, values, lifetimes_, beside_, top);
    for (const ValueId id : values) {
      if (!plan_.graph.value(id).per_micro_batch || plan_.placements[id].frame >= 0) continue;
      const Lifetime& life = lifetimes_[id.index()];
      if (life.pooled) {
        pools[life.block].push_back(id);
      } else if (may_wait_ && received_ahead(life)) {
        put(id, copies_to_receive_ahead(c, life), true);
      } else if (life.leaves_block) {
        const std::int32_t proven = copies_of(c, life);
        const std::int32_t waited = may_wait_ ? copies_if_waited_for(c, life) : proven;
        // What a step writes once per micro-batch has no more copies than that. Where even these are not proven free
        // for the next step, whoever writes them waits for the readers of this one, which closes no cycle.
        put(id, std::min(proven, waited),
            waited < proven || (proven == plan_.graph.micro_batches && !enough(c, life, proven)));
      } else if (life.block.valid()) {
        scratch[life.block].push_back(id);
      }
    }
    // What transfers may still read when the block has ended is no scratch: other blocks would write over it.
    for (auto& [block, list] : pools) {
      top = place_pool(list, top, plan_.classes[c].blocks[block].operations.size());
    }
    place_scratch(c, scratch, top);
  }

  // Blocks share it where they run one after the other; those that are woven into each other do not. Where
  // micro-batches pause in their blocks, scratch lives from one pause to the next at most.
  void place_scratch(ClassId c, std::map<BlockId, std::vector<ValueId>>& scratch, std::int64_t top) {
    const ClassPlan& class_plan = plan_.classes[c];
    const WovenKinds woven = has_pauses(class_plan) ? WovenKinds{} : woven_kinds(class_plan);
    EnumArray<BlockKind, std::int64_t, kBlockKinds> highest;
    highest.fill(top);
    for (int k = 0; k < kBlockKinds; ++k) {
      const auto kind = static_cast<BlockKind>(k);
      std::int64_t base = top;
      for (int other = 0; other < k; ++other) {
        if (woven[kind][static_cast<BlockKind>(other)]) base = std::max(base, highest[static_cast<BlockKind>(other)]);
      }
      for (auto& [block, list] : scratch) {
        if (class_plan.blocks[block].kind == kind) highest[kind] = std::max(highest[kind], pack(list, base));
      }
    }
    plan_.classes[c].memory = Bytes{*std::max_element(highest.begin(), highest.end())};
  }

  // Returns the smallest k for which micro-batch i + k is written only after micro-batch i was last used, and the next
  // iteration's only after this one's.
  std::int32_t copies_of(ClassId c, const Lifetime& life) {
    const auto micro_batches = static_cast<std::int32_t>(plan_.graph.micro_batches);
    std::int32_t copies = 1;
    // Where micro-batches are written in ascending order, what was free stays free with more copies: one pass.
    for (std::int32_t i = 0; i + copies < micro_batches; ++i) {
      while (i + copies < micro_batches && !free_for(c, life, {i}, {i + copies}, 0)) ++copies;
    }
    while (copies < micro_batches && !enough(c, life, copies)) ++copies;
    return copies;
  }

  // Where writers wait for readers beside compute, these copies are enough: what compute itself needs, and at least
  // two, so that a transfer and the next write overlap. Nobody can wait for what is issued later.
  std::int32_t copies_if_waited_for(ClassId c, const Lifetime& life) {
    if (!std::all_of(life.writers.begin(), life.writers.end(), [&](OpId op) { return in_chain(op); })) return INT32_MAX;
    Lifetime compute_only = life;
    std::erase_if(compute_only.readers, [&](OpId reader) { return !in_chain(reader); });
    std::int32_t copies = std::max(2, copies_of(c, compute_only));
    const auto micro_batches = static_cast<std::int32_t>(plan_.graph.micro_batches);
    for (std::int32_t i = 0; i + copies < micro_batches; ++i) {
      while (i + copies < micro_batches && !issued_before(life, {i}, {i + copies})) ++copies;
    }
    return copies;
  }

  // Returns whether readers of micro-batch `used` are issued before writers of micro-batch `next` of the same
  // iteration. Instances of a class are numbered in issue order.
  bool issued_before(const Lifetime& life, MicroBatch used, MicroBatch next) const {
    return std::all_of(life.writers.begin(), life.writers.end(), [&](OpId writer) {
      return std::all_of(life.readers.begin(), life.readers.end(), [&](OpId reader) {
        return unfolded_.instance_of(reader, used) < unfolded_.instance_of(writer, next);
      });
    });
  }

  bool in_chain(OpId op) const { return unfolded_.instances()[unfolded_.instance_of(op, {0})].chain_position >= 0; }

  // A message that is received beside compute and used by compute is held back by nothing on this rank but memory.
  bool received_ahead(const Lifetime& life) const {
    if (life.writers.size() != 1 || life.readers.empty()) return false;
    const auto& transfer = plan_.graph.op(life.writers.front()).communication;
    return transfer && transfer->collective == Collective::send_recv && !transfer->sends &&
           !in_chain(life.writers.front()) &&
           std::all_of(life.readers.begin(), life.readers.end(), [&](OpId reader) { return in_chain(reader); });
  }

  // Returns as many as if compute waited for the message in front of its first reader, and one that the message fills
  // meanwhile. It waits for what a blocking receive would find free, so it closes no cycle.
  std::int32_t copies_to_receive_ahead(ClassId c, const Lifetime& life) {
    const auto position = [&](OpId op) { return unfolded_.instances()[unfolded_.instance_of(op, {0})].chain_position; };
    Lifetime blocking = life;
    blocking.writers = {*std::min_element(life.readers.begin(), life.readers.end(),
                                          [&](OpId a, OpId b) { return position(a) < position(b); })};
    std::erase(blocking.readers, blocking.writers.front());
    return std::min(static_cast<std::int32_t>(plan_.graph.micro_batches), copies_of(c, blocking) + 1);
  }

  bool enough(ClassId c, const Lifetime& life, std::int32_t copies) {
    const auto micro_batches = static_cast<std::int32_t>(plan_.graph.micro_batches);
    for (std::int32_t i = 0; i < micro_batches; ++i) {
      const bool last = i + copies >= micro_batches;  // followed by the next iteration's first in the same copy
      if (!free_for(c, life, {i}, {last ? i % copies : i + copies}, last ? 1 : 0)) return false;
    }
    return true;
  }

  // Returns whether every reader of micro-batch `used` of iteration 0 has ended when `next` of `iteration` is written.
  // Late readers run a pass later.
  bool free_for(ClassId c, const Lifetime& life, MicroBatch used, MicroBatch next, int iteration) {
    return std::all_of(life.writers.begin(), life.writers.end(), [&](OpId by) {
      const InstanceId writer = unfolded_.instance_of(by, next);
      return std::all_of(life.readers.begin(), life.readers.end(), [&](OpId reader) {
        const int pass = passes_between(plan_, by, reader, 0);
        return before(c).ended_before(unfolded_.instance_of(reader, used), pass, writer, iteration);
      });
    });
  }

  const HappensBefore& before(ClassId c) {
    if (!before_) before_.emplace(plan_, unfolded_, landmarks_, c);
    return *before_;
  }

  // Packs by first fit over the positions of the block. Returns the highest address used.
  std::int64_t pack(std::vector<ValueId>& list, std::int64_t base) {
    struct Live {
      std::int64_t begin, end;
      std::int32_t until;  // half step
    };
    std::stable_sort(list.begin(), list.end(),
                     [&](ValueId a, ValueId b) { return lifetimes_[a.index()].begin < lifetimes_[b.index()].begin; });
    std::vector<Live> live;  // by address
    std::int64_t highest = base;
    for (const ValueId id : list) {
      const Lifetime& life = lifetimes_[id.index()];
      std::erase_if(live, [&](const Live& l) { return l.until <= life.begin; });
      const std::int64_t size = aligned(plan_.graph.value(id).bytes()).value;
      std::int64_t at = base;
      auto where = live.begin();
      for (; where != live.end() && where->begin < at + size; ++where) at = std::max(at, where->end);
      live.insert(where, {at, at + size, life.end});
      plan_.placements[id] = {Bytes{at}, 1};
      highest = std::max(highest, checked_sum({at, size}, "memory of the plan"));
    }
    return highest;
  }

  // What is freed at one moment is a slab, say the gradients of a layer. Returns the highest address used.
  std::int64_t place_pool(const std::vector<ValueId>& list, std::int64_t base, std::size_t block_length) {
    std::map<std::int32_t, Slab> by_end;
    for (const ValueId id : list) {
      const Lifetime& life = lifetimes_[id.index()];
      Slab& slab = by_end.try_emplace(life.last, Slab{life.first, life.last, {}, 0, 0}).first->second;
      slab.first = std::min(slab.first, life.first);
      slab.size = checked_sum({slab.size, aligned(plan_.graph.value(id).bytes()).value}, "memory of the plan");
      slab.values.push_back(id);
    }
    std::vector<Slab> slabs;
    for (auto& [end, slab] : by_end) slabs.push_back(std::move(slab));
    const std::int64_t highest = pack_in_turns(slabs, base, static_cast<std::int32_t>(block_length));
    for (const Slab& slab : slabs) {
      std::int64_t at = slab.begin;
      for (const ValueId id : slab.values) {
        plan_.placements[id] = {Bytes{at}, 1};
        at += aligned(plan_.graph.value(id).bytes()).value;
      }
    }
    return highest;
  }

  Plan& plan_;
  bool may_wait_;
  const Unfolded& unfolded_;
  BesideChain beside_;
  std::vector<Lifetime> lifetimes_;
  std::vector<ValueId> storage_;
  Landmarks landmarks_;
  std::optional<HappensBefore> before_;
};

bool any_waits(const Plan& plan) {
  return std::any_of(plan.placements.begin(), plan.placements.end(), [](const Placement& p) { return p.waits; });
}

// Places values as the order alone has it, in which no writer waits for memory yet. Returns the plan unfolded with the
// waits that the places need.
Unfolded place_by_order(Plan& plan, bool may_wait) {
  plan.placements.clear();
  Unfolded bare(plan);
  Placer(plan, bare, may_wait).run();
  return any_waits(plan) ? Unfolded(plan) : std::move(bare);
}

}  // namespace

Unfolded place_values(Plan& plan) {
  Unfolded unfolded = place_by_order(plan, true);
  if (!any_waits(plan) || find_run_order(unfolded).cycle.empty()) return unfolded;
  // Waiting for a buffer can close a cycle that the bare order does not have; then every copy is kept.
  return place_by_order(plan, false);
}

}  // namespace weft
