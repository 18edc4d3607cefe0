#include "plan/verify/hazards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"
#include "plan/happens_before.hpp"
#include "plan/late.hpp"
#include "plan/memory/lifetimes.hpp"

namespace weft {
namespace {

struct Access {
  InstanceId instance;
  int iteration = 0;
  QueueId queue;  // not valid where the instance is in the chain
};

// No value begins or ends inside a stretch of memory. It knows what it holds, and which accesses may not have ended.
struct Stretch {
  ValueId value;
  MicroBatch micro_batch = kOncePerStep;
  int iteration = 0;
  std::vector<Access> accesses;   // the last one in the chain and the last one of each other queue
  std::vector<Access> displaced;  // of what it held before, while parts of an operation write what it holds now
};

class Memory {
 public:
  Memory(const Plan& plan, const Unfolded& unfolded, const HappensBefore& before, const std::vector<ValueId>& storage,
         const OpLists& writers, ClassId rank_class)
      : plan_(plan),
        unfolded_(unfolded),
        before_(before),
        storage_(storage),
        writers_(writers),
        rank_class_(rank_class) {}

  std::optional<Violation> run(const std::vector<ValueId>& values) {
    if (auto found = lay_out(values)) return found;
    for (int iteration = 0; iteration < 2; ++iteration) {
      for (const InstanceId i : unfolded_.instances_of(rank_class_)) {
        const Operation& op = plan_.graph.op(instance(i).operation);
        const Access who{i, iteration, instance(i).chain_position >= 0 ? QueueId{} : instance(i).queue};
        for (const Read& read : op.reads) {
          if (auto found = check_read(read.value, iteration - passes_back(read, instance(i).operation), who))
            return found;
        }
        for (const Write& write : op.writes) {
          if (auto found = check_write(write.value, who)) return found;
        }
        done_[i] = iteration;
      }
    }
    return std::nullopt;
  }

 private:
  struct Extent {
    std::int64_t begin = 0, end = 0;  // bytes; once laid out, indices into stretches_
  };

  const Instance& instance(InstanceId i) const { return unfolded_.instances()[i]; }
  // Iterations are counted in passes here; all writers of a value are late, or none is (check_late).
  int passes_back(const Read& read, OpId reader) const {
    const std::span<const OpId> writers = writers_[read.value.index()];
    return writers.empty() ? read.distance : passes_between(plan_, writers.front(), reader, read.distance);
  }
  std::string name(InstanceId i) const { return describe(plan_, instance(i)); }
  const std::string& name(ValueId id) const { return plan_.graph.value(id).name; }
  static std::string suffix(MicroBatch mb) { return mb.valid() ? fmt::format(" of micro-batch {}", mb.value) : ""; }
  MicroBatch micro_batch(ValueId id, Access who) const {
    return plan_.graph.value(id).per_micro_batch ? instance(who.instance).micro_batch : kOncePerStep;
  }

  // Cuts the class's memory where any copy of any value begins or ends.
  std::optional<Violation> lay_out(const std::vector<ValueId>& values) {
    std::vector<std::int64_t> borders;
    first_copy_.assign(plan_.graph.values.size(), 0);
    for (const ValueId id : values) {
      first_copy_[id] = extents_.size();
      if (auto found = add_copies(id)) return found;
    }
    for (const Extent& extent : extents_) borders.insert(borders.end(), {extent.begin, extent.end});
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    const auto index = [&](std::int64_t byte) {
      return std::lower_bound(borders.begin(), borders.end(), byte) - borders.begin();
    };
    for (Extent& extent : extents_) extent = {index(extent.begin), index(extent.end)};
    stretches_.resize(borders.size());
    sums_.clear();
    done_.assign(unfolded_.instances().size(), -1);
    return std::nullopt;
  }

  std::optional<Violation> add_copies(ValueId id) {
    const Value& value = plan_.graph.value(id);
    const Placement& place = plan_.placements[id];
    const Bytes memory = plan_.classes[rank_class_].memory;
    const std::string& where = plan_.graph.classes[rank_class_].name;
    if (place.copies < 1 || place.offset.value % kAlignment != 0) {
      return Violation{Rule::hazard, fmt::format("{}: '{}' lies at byte {} in {} copies; offsets are multiples of {}, "
                                                 "copies at least 1",
                                                 where, value.name, place.offset.value, place.copies, kAlignment)};
    }
    if (auto found = check_frame(id)) return found;
    if (auto found = check_storage(id)) return found;
    const std::int64_t size = value.bytes().value;
    const std::int64_t copies = !value.per_micro_batch ? 1
                                : place.frame >= 0     ? plan_.graph.micro_batches
                                                   : std::min<std::int64_t>(place.copies, plan_.graph.micro_batches);
    for (std::int64_t i = 0; i < copies; ++i) {
      const std::int64_t begin = address(plan_, id, {static_cast<std::int32_t>(i)}).value;
      if (begin < 0 || begin > memory.value || size > memory.value - begin) {
        return Violation{Rule::hazard,
                         fmt::format("'{}' lies at byte {} and is {} long, outside the {} that {} has", value.name,
                                     begin, format_bytes(value.bytes()), format_bytes(memory), where)};
      }
      extents_.push_back({begin, begin + size});
    }
    return std::nullopt;
  }

  // A transfer of a step works in place: what it leaves lies where what it takes began.
  std::optional<Violation> check_storage(ValueId id) const {
    const ValueId buffer = storage_[id.index()];
    const Placement &place = plan_.placements[id], &shared = plan_.placements[buffer];
    if (place.offset == shared.offset && place.frame == shared.frame) return std::nullopt;
    return Violation{Rule::hazard,
                     fmt::format("{}: '{}' lies at byte {}, apart from '{}' at byte {}; the transfer between "
                                 "them works in place",
                                 plan_.graph.classes[rank_class_].name, name(id), place.offset.value, name(buffer),
                                 shared.offset.value)};
  }

  // A frame that a value names must be there and have a place for every micro-batch.
  std::optional<Violation> check_frame(ValueId id) const {
    const Placement& place = plan_.placements[id];
    if (place.frame < 0) return std::nullopt;
    const std::vector<Frame>& frames = plan_.classes[rank_class_].frames;
    const std::size_t frame = place.frame;
    const bool ok = frame < frames.size() && plan_.graph.value(id).per_micro_batch &&
                    frames[frame].base.size() == static_cast<std::size_t>(plan_.graph.micro_batches) &&
                    std::all_of(
                        frames[frame].base.begin(), frames[frame].base.end(),
                        [](Bytes base) { return base.value % kAlignment == 0; });
    if (ok) return std::nullopt;
    return Violation{
        Rule::hazard,
        fmt::format("{}: '{}' lies in frame {}; a frame has a base for every micro-batch, a multiple of {}",
                    plan_.graph.classes[rank_class_].name, name(id), place.frame, kAlignment)};
  }

  std::span<Stretch> stretches(ValueId id, MicroBatch mb) {
    const Placement& place = plan_.placements[id];
    const std::int32_t copy = !mb.valid() ? 0 : place.frame >= 0 ? mb.value : mb.value % place.copies;
    const Extent& extent = extents_[first_copy_[id] + copy];
    return std::span(stretches_).subspan(extent.begin, extent.end - extent.begin);
  }

  std::optional<Violation> check_read(ValueId id, int iteration, Access who) {
    if (iteration < 0) return std::nullopt;  // initial parameters and state
    const MicroBatch mb = micro_batch(id, who);
    if (auto found = check_parts(id, iteration, mb, who)) return found;
    for (Stretch& stretch : stretches(id, mb)) {
      if (another_part_wrote(stretch, id, who)) {
        note(stretch, who);
        continue;
      }
      if (!stretch.value.valid()) {
        return Violation{Rule::hazard,
                         fmt::format("[{}] reads '{}' before anything has written it", name(who.instance), name(id))};
      }
      if (stretch.value != id || stretch.micro_batch != mb || stretch.iteration != iteration) {
        return Violation{Rule::hazard,
                         fmt::format("[{}] reads '{}'{}, but its memory holds '{}'{}, last touched by [{}]",
                                     name(who.instance), name(id), suffix(mb), name(stretch.value),
                                     suffix(stretch.micro_batch), name(stretch.accesses.front().instance))};
      }
      note(stretch, who);
    }
    return std::nullopt;
  }

  // All parts that write what an operation reads must have been issued.
  std::optional<Violation> check_parts(ValueId id, int iteration, MicroBatch mb, Access who) const {
    const std::span<const OpId> writers = writers_[id.index()];
    if (writers.size() < 2 || !is_part(plan_.graph.op(writers.front()))) return std::nullopt;
    if (plan_.graph.value(id).accumulated) return std::nullopt;  // every part adds to the whole, in every micro-batch
    const Slice slice = read_slice_of(plan_.graph, operation(who), id);
    const auto missing = std::count_if(writers.begin(), writers.end(), [&](OpId writer) {
      return overlap(slice, slice_of(plan_.graph, plan_.graph.op(writer), id)) &&
             done_[unfolded_.instance_of(writer, mb)] != iteration;
    });
    if (missing == 0) return std::nullopt;
    return Violation{Rule::hazard, fmt::format("[{}] reads '{}' before {} of its {} parts have written it",
                                               name(who.instance), name(id), missing, writers.size())};
  }

  std::optional<Violation> check_write(ValueId id, Access who) {
    const MicroBatch mb = micro_batch(id, who);
    // A sum begins anew with the first write of an iteration; every other one adds to it.
    if (plan_.graph.value(id).accumulated) {
      const auto [sum, begins] = sums_.try_emplace({id, mb}, who.iteration);
      if (!begins && sum->second == who.iteration) {
        if (auto found = check_read(id, who.iteration, who)) return found;
      }
      sum->second = who.iteration;
    }
    const bool others_wrote = another_part_is_there(id, mb, who);
    for (Stretch& stretch : stretches(id, mb)) {
      if (joins_other_parts(stretch, id, mb, who)) {
        if (const Access* earlier = still_using(stretch.displaced, stretch, id, who)) {
          return overwrites(id, mb, who, stretch, *earlier);
        }
        note(stretch, who);
        continue;
      }
      if (const Access* earlier = still_using(stretch.accesses, stretch, id, who)) {
        return overwrites(id, mb, who, stretch, *earlier);
      }
      if (others_wrote && !in_place(stretch.value, id)) return overwritten_between_parts(id, mb, who, stretch);
      stretch.displaced.clear();
      if (is_part(operation(who))) stretch.displaced = stretch.accesses;
      stretch.value = id;
      stretch.micro_batch = mb;
      stretch.iteration = who.iteration;
      stretch.accesses.assign(1, who);
    }
    return std::nullopt;
  }

  // Returns one of the accesses that may not have ended when `who` writes.
  const Access* still_using(const std::vector<Access>& accesses, const Stretch& stretch, ValueId id, Access who) const {
    for (const Access& earlier : accesses) {
      const bool itself = earlier.instance == who.instance && earlier.iteration == who.iteration;
      if (itself && (in_place(stretch.value, id) || stretch.value == id)) continue;
      if (!itself && earlier.queue == who.queue) continue;  // a queue runs in the order in which we go through it
      if (part_of_the_same(earlier, who)) continue;
      if (!before_.ended_before(earlier.instance, earlier.iteration, who.instance, who.iteration)) return &earlier;
    }
    return nullptr;
  }

  Violation overwrites(ValueId id, MicroBatch mb, Access who, const Stretch& stretch, const Access& earlier) const {
    const bool itself = earlier.instance == who.instance && earlier.iteration == who.iteration;
    return {Rule::hazard,
            fmt::format("[{}] writes '{}'{} over '{}'{}, which {}", name(who.instance), name(id), suffix(mb),
                        name(stretch.value), suffix(stretch.micro_batch),
                        itself ? "it uses itself" : fmt::format("[{}] may still be using", name(earlier.instance)))};
  }

  // Returns whether another part has written its elements of the value, which must stay until the value is read.
  bool another_part_is_there(ValueId id, MicroBatch mb, Access who) const {
    if (!is_part(operation(who)) || plan_.graph.value(id).accumulated) return false;
    const std::span<const OpId> writers = writers_[id.index()];
    return std::any_of(writers.begin(), writers.end(), [&](OpId writer) {
      const InstanceId other = unfolded_.instance_of(writer, mb);
      return other != who.instance && done_[other] == who.iteration;
    });
  }

  Violation overwritten_between_parts(ValueId id, MicroBatch mb, Access who, const Stretch& stretch) const {
    return {
        Rule::hazard,
        fmt::format("[{}] writes its part of '{}'{}, but '{}'{} lies over what other parts have written of it, last "
                    "touched by [{}]",
                    name(who.instance), name(id), suffix(mb), name(stretch.value), suffix(stretch.micro_batch),
                    name(stretch.accesses.front().instance))};
  }

  // Another part of the same operation has begun to write the value: each has elements of its own (check_provenance
  // sees to that), and what lay there before must be free for every one of them.
  bool joins_other_parts(const Stretch& stretch, ValueId id, MicroBatch mb, Access who) const {
    if (stretch.value != id || stretch.micro_batch != mb || stretch.iteration != who.iteration) return false;
    return is_part(operation(who)) && !plan_.graph.value(id).accumulated;
  }

  const Operation& operation(Access who) const { return plan_.graph.op(instance(who.instance).operation); }

  // Two parts of one operation touch different elements, in whatever leg: neither is in the other's way.
  bool part_of_the_same(Access a, Access b) const {
    if (a.instance == b.instance || a.iteration != b.iteration) return false;
    const Operation &x = operation(a), &y = operation(b);
    if (!is_part(x) || !is_part(y) || x.origins.front().operation != y.origins.front().operation) return false;
    const Origin &p = x.origins.front(), &q = y.origins.front();
    return !overlap(Slice{p.begin, p.end, p.of, p.axis}, Slice{q.begin, q.end, q.of, q.axis});
  }

  // Operations in place: where another part has left its result, this one still finds its own elements of what both
  // read.
  bool another_part_wrote(const Stretch& stretch, ValueId id, Access who) const {
    return stretch.value.valid() && stretch.value != id && in_place(id, stretch.value) &&
           !stretch.micro_batch.valid() && stretch.iteration == who.iteration &&
           part_of_the_same(stretch.accesses.front(), who);
  }

  bool in_place(ValueId from, ValueId to) const {
    return storage_[from.index()] == storage_[to.index()] &&
           plan_.placements[from].offset == plan_.placements[to].offset;
  }

  // Later accesses on the same queue end later: one per queue is enough.
  static void note(Stretch& stretch, Access who) {
    for (Access& access : stretch.accesses) {
      if (access.queue == who.queue) {
        access = who;
        return;
      }
    }
    stretch.accesses.push_back(who);
  }

  const Plan& plan_;
  const Unfolded& unfolded_;
  const HappensBefore& before_;
  const std::vector<ValueId>& storage_;
  const OpLists& writers_;
  ClassId rank_class_;
  std::vector<Extent> extents_;                         // of all copies of all values
  IdVector<ValueId, std::size_t> first_copy_;           // index into extents_
  std::vector<Stretch> stretches_;                      // by address
  std::map<std::pair<ValueId, MicroBatch>, int> sums_;  // the last iteration that added to an accumulated value
  IdVector<InstanceId, int> done_;                      // the last iteration that issued it
};

}  // namespace

std::optional<Violation> check_hazards(const WholePlan& whole, const std::vector<InstanceId>& order) {
  const Plan& plan = whole.plan();
  const Unfolded& unfolded = whole.unfolded();
  if (plan.placements.size() != plan.graph.values.size()) {
    return Violation{Rule::hazard, fmt::format("the plan places {} values, its graph has {}", plan.placements.size(),
                                               plan.graph.values.size())};
  }
  IdVector<ClassId, std::vector<ValueId>> values(plan.classes.size());
  for (const ValueId id : plan.graph.values.ids()) values[plan.graph.value(id).rank_class].push_back(id);
  const std::vector<ValueId> storage = find_storage(plan);
  const OpLists writers = writers_by_value(plan.graph);
  const Landmarks landmarks(unfolded, order);
  for (const ClassId c : plan.classes.ids()) {
    const HappensBefore before(plan, unfolded, landmarks, c);
    if (auto found = Memory(plan, unfolded, before, storage, writers, c).run(values[c])) return found;
  }
  return std::nullopt;
}

}  // namespace weft
