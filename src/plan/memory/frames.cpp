#include "plan/memory/frames.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "plan/memory/beside_chain.hpp"
#include "plan/woven_passes.hpp"

namespace weft {
namespace {

constexpr const char* kWhat = "memory of the plan";

bool in_chain(const Plan& plan, OpId op) {
  const Issue& issue = plan.issues[op];
  return issue.queue == kComputeQueue || issue.blocking;
}

// Allocates by first fit. What is in use is kept by address; what has no gap before it is not looked at again.
class Allocator {
 public:
  explicit Allocator(std::int64_t first) : first_(first), highest_(first) {}

  std::int64_t take(std::int64_t size) {
    while (dense_ < used_.size() && used_[dense_].begin == end_of_dense()) ++dense_;
    std::int64_t at = end_of_dense();
    auto where = used_.begin() + static_cast<std::ptrdiff_t>(dense_);
    for (; where != used_.end() && where->begin < at + size; ++where) at = where->end;
    used_.insert(where, {at, checked_sum({at, size}, kWhat)});
    highest_ = std::max(highest_, at + size);
    return at;
  }
  void free(std::int64_t begin, std::int64_t size) {
    const auto found = std::lower_bound(used_.begin(), used_.end(), Used{begin, begin + size});
    WEFT_CHECK(found != used_.end() && *found == (Used{begin, begin + size}));
    dense_ = std::min(dense_, static_cast<std::size_t>(found - used_.begin()));
    used_.erase(found);
  }
  std::int64_t highest() const { return highest_; }

 private:
  struct Used {
    std::int64_t begin, end;
    friend auto operator<=>(const Used&, const Used&) = default;
  };
  std::int64_t end_of_dense() const { return dense_ == 0 ? first_ : used_[dense_ - 1].end; }

  std::int64_t first_, highest_;
  std::vector<Used> used_;
  std::size_t dense_ = 0;  // so many of the first have no gap before them
};

// An operation stands in a block of the class, at a position.
struct Spot {
  BlockId block;
  std::int32_t position = 0;
  friend auto operator<=>(const Spot&, const Spot&) = default;
};

// A pass takes these values together, before the operation at `taken`, and frees them when it is behind all of `freed`:
// one for each block, because sections of blocks that are woven into each other may end in any order.
struct Group {
  Spot taken;
  std::vector<Spot> freed;
  std::vector<ValueId> values;
  std::int64_t size = 0;
  std::vector<Bytes> base = {};  // by micro-batch
};

class FramePlacer {
 public:
  FramePlacer(const Plan& plan, const BesideChain& beside, ClassId rank_class, const std::vector<Lifetime>& lifetimes)
      : plan_(plan),
        beside_(beside),
        class_(plan.classes[rank_class]),
        lifetimes_(lifetimes),
        pauses_(has_pauses(class_)) {}

  // The order of compute says when its memory is free: compute writes it, or what starts behind compute of the same
  // block, and compute of the same chunk reads it, or what compute waits for. Slices before its own, which go back
  // behind it, do not read it. It is what a forward leaves for backward, or input gradients for weight gradients; where
  // micro-batches pause, also what backward makes.
  bool is_framed(ValueId id) const {
    const Lifetime& life = lifetimes_[id.index()];
    if (!plan_.graph.value(id).per_micro_batch || !life.leaves_block || life.pooled || life.carried ||
        !life.block.valid()) {
      return false;
    }
    const IssueBlock& written_in = block(life.block);
    const auto writes = [&](OpId op) {
      return begins_in_order(op) && ends_in_order(op) && spot(op).block == life.block;
    };
    const auto reads = [&](OpId op) {
      const IssueBlock& read_in = block(spot(op).block);
      return ends_in_order(op) && read_in.chunk == written_in.chunk && read_in.slice >= written_in.slice;
    };
    const bool is_kept = written_in.kind == BlockKind::forward || written_in.kind == BlockKind::input_grad;
    return (is_kept || pauses_) && !life.readers.empty() &&
           std::all_of(life.writers.begin(), life.writers.end(), writes) &&
           std::all_of(life.readers.begin(), life.readers.end(), reads);
  }

  // One group holds all that a forward leaves, from its begin to the end of its pass, and one what input gradients
  // leave. Slices behind it read the keys and values of a slice no later than it does itself in backward.
  std::vector<Group> by_pass(const std::vector<ValueId>& framed) const {
    std::map<std::tuple<std::int32_t, std::int32_t, BlockId>, Group> groups;  // by chunk, slice and where it begins
    for (const ValueId id : framed) {
      const BlockId begin = lifetimes_[id.index()].block;
      Group& group = groups[{block(begin).chunk, block(begin).slice, begin}];
      group.taken = {begin, 0};
      add(id, group);
    }
    for (auto& [pass, group] : groups) {
      for (const BlockId b : class_.blocks.ids()) {
        const IssueBlock& last = class_.blocks[b];
        const bool goes_back = last.kind == BlockKind::input_grad || ends_pass(last.kind);
        if (!goes_back || last.chunk != std::get<0>(pass) || last.slice != std::get<1>(pass)) continue;
        group.freed.push_back({b, static_cast<std::int32_t>(last.operations.size()) - 1});
      }
    }
    return values_of(std::move(groups));
  }

  // One group holds the values of a block with the same last users, from their first writer on; where micro-batches
  // pause, what is written elsewhere has a group of its own, or many micro-batches would hold its memory long before.
  std::vector<Group> by_last_reader(const std::vector<ValueId>& framed) const {
    std::map<std::tuple<std::vector<Spot>, BlockId, std::int32_t>, Group> groups;
    for (const ValueId id : framed) {
      const Lifetime& life = lifetimes_[id.index()];
      std::map<BlockId, std::int32_t> last;
      add_uses(life, last);
      const Spot first = first_write(life);
      extend(groups[{in_order(last), first.block, pauses_ ? first.position : 0}], id, last);
    }
    return values_of(std::move(groups));
  }

  // One group holds what a block writes of a layer. Layers are alike, so that one takes exactly what another has freed.
  std::vector<Group> by_layer(const std::vector<ValueId>& framed) const {
    std::map<std::tuple<BlockId, std::int32_t>, Group> groups;
    for (const ValueId id : framed) {
      const Lifetime& life = lifetimes_[id.index()];
      Group& group = groups[{life.block, plan_.graph.op(life.writers.front()).layer}];
      std::map<BlockId, std::int32_t> last;
      for (const Spot& spot : group.freed) last.emplace(spot.block, spot.position);
      add_uses(life, last);
      extend(group, id, last);
    }
    return values_of(std::move(groups));
  }

  // Places groups by first fit in issue order. Returns the first byte behind all of them.
  std::int64_t find_bases(std::vector<Group>& groups, std::int64_t top) const {
    struct Event {
      std::int32_t position;
      bool frees;
      std::size_t group;
    };
    const auto micro_batches = static_cast<std::size_t>(plan_.graph.micro_batches);
    IdVector<BlockId, std::vector<Event>> events(class_.blocks.size());
    std::vector<std::size_t> in_use(groups.size() * micro_batches);  // so many of `freed` are still to come
    for (std::size_t g = 0; g < groups.size(); ++g) {
      groups[g].base.resize(micro_batches);
      events[groups[g].taken.block].push_back({groups[g].taken.position, false, g});
      for (const Spot& last : groups[g].freed) events[last.block].push_back({last.position, true, g});
      std::fill_n(in_use.begin() + static_cast<std::ptrdiff_t>(g * micro_batches), micro_batches,
                  groups[g].freed.size());
    }
    // An operation writes its results before what it reads is free.
    for (std::vector<Event>& of_block : events) {
      std::stable_sort(of_block.begin(), of_block.end(), [](const Event& a, const Event& b) {
        return std::tuple(a.position, a.frees) < std::tuple(b.position, b.frees);
      });
    }
    Allocator memory(top);
    for (const IssueSlot& slot : class_.order) {
      const auto end = slot.begin + static_cast<std::int32_t>(operations_of(class_, slot).size());
      const std::vector<Event>& of_block = events[slot.block];
      const auto is_before = [](const Event& event, std::int32_t position) { return event.position < position; };
      for (auto event = std::lower_bound(of_block.begin(), of_block.end(), slot.begin, is_before);
           event != of_block.end() && event->position < end; ++event) {
        Group& group = groups[event->group];
        Bytes& base = group.base[slot.micro_batch.index()];
        if (!event->frees) {
          base = Bytes{memory.take(group.size)};
        } else if (--in_use[event->group * micro_batches + slot.micro_batch.index()] == 0) {
          memory.free(base.value, group.size);
        }
      }
    }
    return memory.highest();
  }

 private:
  Spot spot(OpId op) const { return {beside_.spot(op).block, beside_.spot(op).position}; }
  // Whether the order of compute says when its memory must be there, and when it surely has ended.
  bool begins_in_order(OpId op) const { return in_chain(plan_, op) || beside_.starts_after(op) >= 0; }
  bool ends_in_order(OpId op) const {
    return in_chain(plan_, op) || beside_.ended_at(op) < beside_.length_of_block(op);
  }
  // The operation of compute before which its memory must be there, and the one behind which it surely has ended.
  Spot begin_of(OpId op) const {
    return {spot(op).block, in_chain(plan_, op) ? spot(op).position : beside_.starts_after(op)};
  }
  Spot end_of(OpId op) const {
    return {spot(op).block, in_chain(plan_, op) ? spot(op).position : beside_.ended_at(op)};
  }
  const IssueBlock& block(BlockId id) const { return class_.blocks[id]; }
  Spot first_write(const Lifetime& life) const {
    Spot first = begin_of(life.writers.front());
    for (const OpId writer : life.writers) first = std::min(first, begin_of(writer));
    return first;
  }
  // By block, the last place where a value is used.
  void add_uses(const Lifetime& life, std::map<BlockId, std::int32_t>& last) const {
    for (const auto* users : {&life.writers, &life.readers}) {
      for (const OpId user : *users) {
        const Spot end = end_of(user);
        std::int32_t& position = last.try_emplace(end.block, end.position).first->second;
        position = std::max(position, end.position);
      }
    }
  }
  static std::vector<Spot> in_order(const std::map<BlockId, std::int32_t>& last) {
    std::vector<Spot> spots;
    for (const auto& [block, position] : last) spots.push_back({block, position});
    return spots;
  }
  void extend(Group& group, ValueId id, const std::map<BlockId, std::int32_t>& last) const {
    const Spot first = first_write(lifetimes_[id.index()]);
    group.taken = group.values.empty() ? first : std::min(group.taken, first);
    group.freed = in_order(last);
    add(id, group);
  }
  template <class Groups>
  static std::vector<Group> values_of(Groups groups) {
    std::vector<Group> result;
    for (auto& [key, group] : groups) result.push_back(std::move(group));
    return result;
  }
  void add(ValueId id, Group& group) const {
    group.values.push_back(id);
    group.size = checked_sum({group.size, aligned(plan_.graph.value(id).bytes()).value}, kWhat);
  }

  const Plan& plan_;
  const BesideChain& beside_;
  const ClassPlan& class_;
  const std::vector<Lifetime>& lifetimes_;
  bool pauses_;
};

// Returns whether forwards run between the operations of another pass's backward and could use what these free. They do
// where blocks are woven into each other, and where a backward is split into two blocks.
bool frees_within_passes(const ClassPlan& plan) {
  return has_woven_passes(plan) || std::any_of(plan.blocks.begin(), plan.blocks.end(),
                                               [](const IssueBlock& b) { return b.kind == BlockKind::weight_grad; });
}

}  // namespace

std::int64_t place_frames(Plan& plan, ClassId rank_class, const std::vector<ValueId>& values,
                          const std::vector<Lifetime>& lifetimes, const BesideChain& beside, std::int64_t top) {
  ClassPlan& class_plan = plan.classes[rank_class];
  class_plan.frames.clear();
  const bool pauses = has_pauses(class_plan), frees_within = frees_within_passes(class_plan);
  // One chunk and whole sequences: copies of its own are as many as are in flight.
  if (plan.layout.vpp == 1 && !plan.layout.has_slices() && !pauses && !frees_within) return top;
  const FramePlacer placer(plan, beside, rank_class, lifetimes);
  std::vector<ValueId> framed;
  std::copy_if(values.begin(), values.end(), std::back_inserter(framed),
               [&](ValueId id) { return placer.is_framed(id); });
  std::vector<Group> groups = pauses ? placer.by_last_reader(framed) : placer.by_pass(framed);
  std::int64_t highest = placer.find_bases(groups, top);
  // Slices behind a slice read of its values, so that more than one pass would say who is the last.
  if (!pauses && !plan.layout.has_slices() && frees_within) {
    // The smaller the groups, the sooner memory is free, and the more holes they may leave.
    for (std::vector<Group> smaller : {placer.by_last_reader(framed), placer.by_layer(framed)}) {
      const std::int64_t lower = placer.find_bases(smaller, top);
      if (lower >= highest) continue;
      groups = std::move(smaller);
      highest = lower;
    }
  }
  for (Group& group : groups) {
    std::int64_t offset = 0;
    for (const ValueId id : group.values) {
      plan.placements[id] = {.offset = Bytes{offset}, .frame = static_cast<std::int32_t>(class_plan.frames.size())};
      offset += aligned(plan.graph.value(id).bytes()).value;
    }
    class_plan.frames.push_back({std::move(group.base)});
  }
  return highest;
}

}  // namespace weft
