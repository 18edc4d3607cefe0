// Binds the legs of layer traffic in two levels (graph/substitute.hpp): tensor, context and expert parallelism.
//
// What lies between two legs is a value of the plan alone. Rank `outer inner + i` is place i of inner group `outer`.
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

// Calls visit(rank of the group) for those that a member of the scope stands for.
template <class Visit>
void for_each_rank_of(Scope scope, std::int64_t member, std::int64_t inner, std::int64_t ranks, const Visit& visit) {
  for (std::int64_t r = 0; r < ranks; ++r) {
    if ((scope == Scope::inner ? r % inner : r / inner) == member) visit(r);
  }
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
  switch (op.rule) {
    case Substitution::all_to_all_in_levels:
      return add_leg_of_exchange(op, micro_batch, ends);
    case Substitution::all_reduce_in_levels:
      return add_leg_of_sum(op, micro_batch, ends);
    default:
      return add_leg_of_rows(op, micro_batch, ends);
  }
}

// The rows of a part lie behind each other, and each place of the inner groups sums an equal slice of them. Between the
// legs a part has its range of the whole's slice.
void TransferBinder::add_leg_of_sum(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const Origin& part = op.origins.front();
  const Operation& original = view_.original().op(part.operation);
  const std::int64_t inner = view_.level_sizes(op.communication->group).inner;
  const std::int64_t elements = view_.original().value(carried_by(original).front().read).elements();
  const ElementRange rows = part_range(elements, part), slice = part_range(elements / inner, part);
  const Carried own = carried_by(op).front();
  const auto slices = [&](ValueId value) {
    Segments all;
    for (std::int64_t m = 0; m < inner; ++m) {
      all.push_back(segment_of(view_.data(value, micro_batch) + (rows.begin + m * slice.size()), slice.size()));
    }
    return all;
  };
  const auto between = [&](ValueId value) {
    return Segments{segment_of(view_.data(value, micro_batch) + slice.begin, slice.size())};
  };
  const Collective collective = op.communication->collective;
  ends.input = collective == Collective::reduce_scatter ? slices(own.read) : between(own.read);
  ends.output = collective == Collective::all_gather ? slices(own.written) : between(own.written);
  if (collective == Collective::all_reduce) return;
  ends.slices.assign(static_cast<std::size_t>(inner), slice.size());
}

// Between the legs lie the shards of this rank's place in every inner group, and a part has its range of each.
void TransferBinder::add_leg_of_rows(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const Origin& part = op.origins.front();
  const Operation& original = view_.original().op(part.operation);
  const Communication& c = *op.communication;
  const bool scatters = c.collective == Collective::reduce_scatter;
  const auto [read, written] = carried_by(original).front();
  const ValueId share = scatters ? written : read;
  const std::int64_t inner = view_.level_sizes(c.group).inner, ranks = view_.group_size(c.group);
  const std::int64_t length = view_.original().value(share).elements();
  const ElementRange range = part_range(length, part);
  const Carried own = carried_by(op).front();
  Segments shards;  // between the legs, by inner group
  const ElementPointer between =
      view_.data((c.scope == Scope::inner) == scatters ? own.written : own.read, micro_batch);
  for (std::int64_t o = 0; o < ranks / inner; ++o) {
    shards.push_back(segment_of(between + (o * length + range.begin), range.size()));
  }
  Segments members, self;  // what all members of the scope hold together, and what this rank does
  if (c.scope == Scope::outer) {
    members = shards;
    self = {segment_of(view_.data(share, micro_batch) + range.begin, range.size())};
    ends.slices.assign(shards.size(), range.size());
  } else {
    const std::vector<Segments> of_rank = shares_of(original, part, share, scatters ? read : written, micro_batch);
    for (std::int64_t m = 0; m < inner; ++m) {
      for_each_rank_of(Scope::inner, m, inner, ranks,
                       [&](std::int64_t r) { append(members, of_rank[static_cast<std::size_t>(r)]); });
    }
    self = shards;
    ends.slices.assign(static_cast<std::size_t>(inner), ranks / inner * range.size());
  }
  ends.input = scatters ? members : self;
  ends.output = scatters ? self : members;
}

// On both sides a member of the scope has the blocks of the ranks that it stands for: first what the own node sends to
// one place of every node, by destination, then what one place of a node has of all ranks there, by source.
void TransferBinder::add_leg_of_exchange(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const Origin& part = op.origins.front();
  const Operation& original = view_.original().op(part.operation);
  const Communication& c = *op.communication;
  const std::int64_t inner = view_.level_sizes(c.group).inner, ranks = view_.group_size(c.group);
  const std::int64_t members = c.scope == Scope::inner ? inner : ranks / inner;
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
    for (std::int64_t m = 0; m < members; ++m) {
      for_each_rank_of(c.scope, m, inner, ranks,
                       [&](std::int64_t r) { blocks.append_rank(r, use.ranges(), segments); });
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
  const bool returns = returns_rows(original);
  ends.input.push_back(segment_of(op.leg == 1 ? table.passed_on : returns ? table.incoming : table.outgoing));
  ends.output.push_back(segment_of(op.leg == 0 ? table.passed_on : returns ? table.outgoing : table.incoming));
  ends.uneven = UnevenBlocks{.blocks = ranks / members * blocks.of_rank,
                             .units = blocks.capacity,
                             .unit_bytes = wire_bytes(blocks.width, c.format).value,
                             .in_run = c.scope == Scope::inner ? blocks.of_rank : 0};
}

}  // namespace weft
