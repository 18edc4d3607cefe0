#include "plan/memory/frames.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/checked.hpp"
#include "plan/memory/beside_chain.hpp"
#include "plan/woven_passes.hpp"

namespace weft {
namespace {

constexpr const char* kWhat = "memory of the plan";

bool in_chain(const Plan& plan, OpId op) {
  const Issue& issue = plan.issues[op];
  return issue.queue == kComputeQueue || issue.blocking;
}

// Allocates by first fit. What is in use is kept by address.
class Allocator {
 public:
  explicit Allocator(std::int64_t first) : first_(first), highest_(first) {}

  std::int64_t take(std::int64_t size) {
    std::int64_t at = first_;
    auto where = used_.begin();
    for (; where != used_.end() && where->begin < at + size; ++where) at = where->end;
    used_.insert(where, {at, checked_sum({at, size}, kWhat)});
    highest_ = std::max(highest_, at + size);
    return at;
  }
  void free(std::int64_t begin, std::int64_t size) {
    std::erase_if(used_, [&](const Used& used) { return used.begin == begin && used.end == begin + size; });
  }
  std::int64_t highest() const { return highest_; }

 private:
  struct Used {
    std::int64_t begin, end;
  };
  std::int64_t first_, highest_;
  std::vector<Used> used_;
};

// An operation stands in a block of the class, at a position.
struct Spot {
  BlockId block;
  std::int32_t position = 0;
};

// A pass takes these values together, before the operation at `taken`, and frees them behind the one at `freed`.
struct Group {
  Spot taken, freed;
  std::vector<ValueId> values;
  std::int64_t size = 0;
  std::vector<Bytes> base = {};  // by micro-batch
};

class FramePlacer {
 public:
  FramePlacer(const Plan& plan, ClassId rank_class, const std::vector<Lifetime>& lifetimes)
      : plan_(plan), class_(plan.classes[rank_class]), lifetimes_(lifetimes), spots_(plan.graph.operations.size()) {
    for (const BlockId b : class_.blocks.ids()) {
      std::int32_t position = 0;
      for (const OpId id : class_.blocks[b].operations) spots_[id] = {b, position++};
    }
    if (has_pauses(class_)) beside_.emplace(plan);
  }

  // Compute of a forward writes it, and nobody but compute of the same chunk reads it, so the order of compute alone
  // says when its memory is free. Slices before its own, which go back behind it, do not read it. Where micro-batches
  // pause, so does it for what backward makes, and for what transfers beside compute use that start behind compute of
  // their block and that it waits for.
  bool is_framed(ValueId id) const {
    const Lifetime& life = lifetimes_[id.index()];
    if (!plan_.graph.value(id).per_micro_batch || !life.leaves_block || life.pooled || !life.block.valid())
      return false;
    const IssueBlock& written_in = block(life.block);
    const auto writes = [&](OpId op) { return is_ordered(op) && spot(op).block == life.block; };
    const auto reads = [&](OpId op) {
      const IssueBlock& read_in = block(spot(op).block);
      return is_ordered(op) && read_in.chunk == written_in.chunk && read_in.slice >= written_in.slice;
    };
    return (written_in.kind == BlockKind::forward || beside_) && !life.readers.empty() &&
           std::all_of(life.writers.begin(), life.writers.end(), writes) &&
           std::all_of(life.readers.begin(), life.readers.end(), reads);
  }

  // One group holds all that a forward leaves, from its begin to the end of its pass. Slices behind it read the keys
  // and values of a slice no later than it does itself in backward.
  std::vector<Group> by_pass(const std::vector<ValueId>& framed) const {
    std::map<std::pair<std::int32_t, std::int32_t>, Group> groups;  // by chunk and slice
    for (const ValueId id : framed) {
      const BlockId forward = lifetimes_[id.index()].block;
      Group& group = groups[{block(forward).chunk, block(forward).slice}];
      group.taken = {forward, 0};
      add(id, group);
    }
    std::vector<Group> result;
    for (auto& [pass, group] : groups) {
      for (const BlockId b : class_.blocks.ids()) {
        const IssueBlock& last = class_.blocks[b];
        if (std::pair(last.chunk, last.slice) != pass || !ends_pass(last.kind)) continue;
        group.freed = {b, static_cast<std::int32_t>(last.operations.size()) - 1};
      }
      result.push_back(std::move(group));
    }
    return result;
  }

  // One group holds the values with the same last reader, from their first writer on; where micro-batches pause, what
  // is written elsewhere has a group of its own, or many micro-batches would hold its memory long before.
  std::vector<Group> by_last_reader(const std::vector<ValueId>& framed) const {
    std::map<std::tuple<BlockId, std::int32_t, BlockId, std::int32_t>, Group> groups;
    for (const ValueId id : framed) {
      const Lifetime& life = lifetimes_[id.index()];
      const auto earlier = [&](const Spot& a, const Spot& b) { return in_pass(a) < in_pass(b); };
      Spot first = begin_of(life.writers.front()), last = end_of(life.readers.front());
      for (const OpId writer : life.writers) first = std::min(first, begin_of(writer), earlier);
      for (const auto* users : {&life.writers, &life.readers}) {
        for (const OpId user : *users) last = std::max(last, end_of(user), earlier);
      }
      const auto [found, is_new] = groups.try_emplace(
          {last.block, last.position, beside_ ? first.block : BlockId{}, beside_ ? first.position : 0},
          Group{first, last, {}});
      if (!is_new && first.position < found->second.taken.position) found->second.taken = first;
      add(id, found->second);
    }
    std::vector<Group> result;
    for (auto& [last, group] : groups) result.push_back(std::move(group));
    return result;
  }

  // Places groups by first fit in issue order. Returns the first byte behind all of them.
  std::int64_t find_bases(std::vector<Group>& groups, std::int64_t top) const {
    struct Event {
      std::int32_t position;
      bool frees;
      std::size_t group;
    };
    IdVector<BlockId, std::vector<Event>> events(class_.blocks.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      groups[g].base.resize(plan_.graph.micro_batches);
      events[groups[g].taken.block].push_back({groups[g].taken.position, false, g});
      events[groups[g].freed.block].push_back({groups[g].freed.position, true, g});
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
      for (const Event& event : events[slot.block]) {
        if (event.position < slot.begin || event.position >= end) continue;
        Group& group = groups[event.group];
        Bytes& base = group.base[slot.micro_batch.index()];
        if (event.frees) {
          memory.free(base.value, group.size);
        } else {
          base = Bytes{memory.take(group.size)};
        }
      }
    }
    return memory.highest();
  }

 private:
  const Spot& spot(OpId op) const { return spots_[op]; }
  // Whether the order of compute says when it begins and ends.
  bool is_ordered(OpId op) const {
    if (in_chain(plan_, op)) return true;
    if (!beside_) return false;
    const std::int32_t ended = beside_->ended_at(op);
    return beside_->starts_after(op) >= 0 && ended < beside_->length_of_block(op);
  }
  // The operation of compute before which its memory must be there, and the one behind which it surely has ended.
  Spot begin_of(OpId op) const {
    return in_chain(plan_, op) ? spot(op) : Spot{spot(op).block, beside_->starts_after(op)};
  }
  Spot end_of(OpId op) const { return in_chain(plan_, op) ? spot(op) : Spot{spot(op).block, beside_->ended_at(op)}; }
  const IssueBlock& block(BlockId id) const { return class_.blocks[id]; }
  // Of two operations of one pass the one with the smaller key comes first.
  std::pair<BlockKind, std::int32_t> in_pass(const Spot& spot) const { return {block(spot.block).kind, spot.position}; }
  void add(ValueId id, Group& group) const {
    group.values.push_back(id);
    group.size = checked_sum({group.size, aligned(plan_.graph.value(id).bytes()).value}, kWhat);
  }

  const Plan& plan_;
  const ClassPlan& class_;
  const std::vector<Lifetime>& lifetimes_;
  std::optional<BesideChain> beside_;  // where micro-batches pause
  IdVector<OpId, Spot> spots_;
};

// Returns whether forwards run between the operations of another pass's backward and could use what these free. They do
// where blocks are woven into each other, and where a backward is split into two blocks.
bool frees_within_passes(const ClassPlan& plan) {
  return has_woven_passes(plan) || std::any_of(plan.blocks.begin(), plan.blocks.end(),
                                               [](const IssueBlock& b) { return b.kind == BlockKind::weight_grad; });
}

}  // namespace

std::int64_t place_frames(Plan& plan, ClassId rank_class, const std::vector<ValueId>& values,
                          const std::vector<Lifetime>& lifetimes, std::int64_t top) {
  ClassPlan& class_plan = plan.classes[rank_class];
  class_plan.frames.clear();
  const bool pauses = has_pauses(class_plan);
  // One chunk and whole sequences: copies of its own are as many as are in flight.
  if (plan.layout.vpp == 1 && !plan.layout.has_slices() && !pauses) return top;
  const FramePlacer placer(plan, rank_class, lifetimes);
  std::vector<ValueId> framed;
  std::copy_if(values.begin(), values.end(), std::back_inserter(framed),
               [&](ValueId id) { return placer.is_framed(id); });
  std::vector<Group> groups = pauses ? placer.by_last_reader(framed) : placer.by_pass(framed);
  std::int64_t highest = placer.find_bases(groups, top);
  // Slices behind a slice read of its values, so that more than one pass would say who is the last.
  if (!pauses && !plan.layout.has_slices() && frees_within_passes(class_plan)) {
    std::vector<Group> smaller = placer.by_last_reader(framed);
    const std::int64_t lower = placer.find_bases(smaller, top);
    if (lower < highest) {  // many small frames may leave holes
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
