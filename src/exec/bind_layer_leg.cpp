// Binds the legs of layer traffic in levels (graph/substitute.hpp): tensor, context and expert parallelism. What lies
// between two legs is a value of the plan alone.
#include <span>

#include "exec/bind_transfer.hpp"
#include "exec/expert_slots.hpp"
#include "exec/transfer_segments.hpp"
#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"

namespace weft {
namespace {

using Segments = std::vector<Segment>;

void append(Segments& all, const Segments& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Where a leg works among the levels of its group, whose ranks are counted with the innermost level running fastest.
struct LegLevel {
  std::int64_t below = 1;    // ranks that share their place here and further out
  std::int64_t members = 1;  // of the leg
  std::int64_t above = 1;    // ranks that share their place here and further in

  LegLevel(Scope scope, LevelSizes sizes, std::int64_t ranks) {
    if (scope != Scope::inner) below = sizes.inner * (scope == Scope::top ? sizes.middle : 1);
    members = scope == Scope::inner ? sizes.inner : scope == Scope::middle ? sizes.middle : ranks / below;
    above = ranks / (below * members);
  }
};

LegLevel level_of(const RankView& view, const Operation& op) {
  const Communication& c = *op.communication;
  return {c.scope, view.level_sizes(c), view.group_size(c.group)};
}

// Blocks of slots on one side of an exchange: those of every rank of the group behind each other.
struct SlotBlocks {
  ElementPointer data;
  std::int64_t width = 0, capacity = 0, of_rank = 1;  // elements of a row, rows of a block, blocks of a rank

  // `used`: rows by block; empty: all.
  void append_rank(std::int64_t rank, std::span<const ElementRange> used, Segments& segments) const {
    const std::int64_t first = rank * of_rank;
    if (used.empty()) {
      segments.push_back(segment_of(data + first * capacity * width, of_rank * capacity * width));
      return;
    }
    for (std::int64_t b = first; b < first + of_rank; ++b) {
      const ElementRange& rows = used[static_cast<std::size_t>(b)];
      segments.push_back(segment_of(data + (b * capacity + rows.begin) * width, rows.size() * width));
    }
  }
};

}  // namespace

void TransferBinder::add_layer_leg(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  switch (rule_of(op.rule).collective) {
    case Collective::all_to_all:
      return add_leg_of_exchange(op, micro_batch, ends);
    case Collective::all_reduce:
      return add_leg_of_sum(op, micro_batch, ends);
    default:
      return add_leg_of_rows(op, micro_batch, ends);
  }
}

// The rows of a part lie behind each other, and each place of the inner groups sums an equal slice of them, of which
// each place of the middle groups sums an equal slice. Between the legs a part has its range of the whole's slice.
void TransferBinder::add_leg_of_sum(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const Origin& part = op.origins.front();
  const Operation& original = view_.original().op(part.operation);
  const LegLevel level = level_of(view_, op);
  const std::int64_t elements = view_.original().value(carried_by(original).front().read).elements() / level.below;
  const ElementRange rows = part_range(elements, part), slice = part_range(elements / level.members, part);
  const Carried own = carried_by(op).front();
  const auto all = [&](ValueId value) {
    return Segments{segment_of(view_.data(value, micro_batch) + rows.begin, rows.size())};
  };
  const auto own_slice = [&](ValueId value) {
    return Segments{segment_of(view_.data(value, micro_batch) + slice.begin, slice.size())};
  };
  const Collective collective = op.communication->collective;
  ends.input = collective == Collective::all_gather ? own_slice(own.read) : all(own.read);
  ends.output = collective == Collective::reduce_scatter ? own_slice(own.written) : all(own.written);
  if (collective == Collective::all_reduce) return;
  ends.slices.assign(static_cast<std::size_t>(level.members), slice.size());
}

// Between the legs lie the shards of this rank's place in every inner group, or in every middle group, and a part has
// its range of each.
void TransferBinder::add_leg_of_rows(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const Origin& part = op.origins.front();
  const Operation& original = view_.original().op(part.operation);
  const bool scatters = op.communication->collective == Collective::reduce_scatter;
  const auto [read, written] = carried_by(original).front();
  const ValueId share = scatters ? written : read;
  const LegLevel level = level_of(view_, op);
  const std::int64_t length = view_.original().value(share).elements();
  const ElementRange range = part_range(length, part);
  const Carried own = carried_by(op).front();
  const auto shards = [&](ValueId value, std::int64_t first, std::int64_t step, std::int64_t count) {
    Segments found;
    const ElementPointer data = view_.data(value, micro_batch);
    for (std::int64_t i = 0; i < count; ++i) {
      found.push_back(segment_of(data + ((first + i * step) * length + range.begin), range.size()));
    }
    return found;
  };
  std::vector<Segments> of_rank;
  if (level.below == 1) of_rank = shares_of(original, part, share, scatters ? read : written, micro_batch);
  Segments all;  // what the members have together, each the shards of its place
  for (std::int64_t m = 0; m < level.members; ++m) {
    if (level.below > 1) {
      append(all, shards(scatters ? own.read : own.written, m, level.members, level.above));
      continue;
    }
    for (std::int64_t r = m; r < std::ssize(of_rank); r += level.members) {
      append(all, of_rank[static_cast<std::size_t>(r)]);
    }
  }
  const Segments self = shards(scatters ? own.written : own.read, 0, 1, level.above);
  ends.slices.assign(static_cast<std::size_t>(level.members), level.above * range.size());
  ends.input = scatters ? all : self;
  ends.output = scatters ? self : all;
}

// On both sides a member of the leg has the blocks of the ranks whose place it has at the leg's level. Before the legs
// blocks lie in the order of the ranks that they are for; a leg replaces the receiver's place at its level by the
// sender's.
void TransferBinder::add_leg_of_exchange(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const Origin& part = op.origins.front();
  const Operation& original = view_.original().op(part.operation);
  const Communication& c = *op.communication;
  const LegLevel level = level_of(view_, op);
  const std::int64_t ranks = view_.group_size(c.group);
  const Value& payload = view_.original().value(read_of(original, Operand::payload));
  const ExpertRowRanges& experts = view_.expert_row_ranges();
  SlotBlocks blocks{.data = {}, .width = payload.shape.back(), .capacity = experts.capacity(original)};
  blocks.of_rank = payload.elements() / (blocks.width * blocks.capacity * ranks);
  SlotUse use = slot_use(view_, original, micro_batch, part);
  const Carried own = carried_by(op).front();
  const auto side = [&](ValueId value) {
    blocks.data = view_.data(value, micro_batch);
    if (use.is_data()) return Segments{segment_of(blocks.data, payload.elements())};
    Segments segments;
    for (std::int64_t m = 0; m < level.members; ++m) {
      for (std::int64_t r = 0; r < ranks; ++r) {
        if (r / level.below % level.members == m) blocks.append_rank(r, use.ranges(), segments);
      }
    }
    return segments;
  };
  ends.input = side(own.read);
  ends.output = side(own.written);
  if (!use.is_data()) return;
  if (use.tables().size() != 1) {
    fail("'{}' is cut otherwise than the way to the experts: weft run cannot carry it out", describe(op));
  }
  // Who passes rows on did not see them on their way out, so all legs tell their sizes.
  ExpertTable& table = *use.tables().front();
  const bool returns = returns_rows(original), last = op.leg + 1 == std::ssize(rule_of(op.rule).legs);
  const auto behind_leg = [&](std::int32_t leg) { return segment_of(table.passed_on[static_cast<std::size_t>(leg)]); };
  ends.input.push_back(op.leg > 0 ? behind_leg(op.leg - 1) : segment_of(returns ? table.incoming : table.outgoing));
  ends.output.push_back(last ? segment_of(returns ? table.outgoing : table.incoming) : behind_leg(op.leg));
  ends.uneven = UnevenBlocks{.blocks = ranks / level.members * blocks.of_rank,
                             .units = blocks.capacity,
                             .unit_bytes = wire_bytes(blocks.width, c.format).value,
                             .in_run = level.below * blocks.of_rank};
}

}  // namespace weft
