#include "exec/bind_transfer.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "collective/piece_sizes.hpp"
#include "exec/expert_slots.hpp"
#include "exec/leg_shares.hpp"
#include "exec/rank_exchange.hpp"
#include "exec/row_ranges.hpp"
#include "exec/transfer_segments.hpp"
#include "graph/kfac.hpp"
#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"
#include "graph/transfer_program.hpp"

namespace weft {
namespace {

bool same_places(const std::vector<Segment>& a, const std::vector<Segment>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Segment& x, const Segment& y) { return x.data == y.data && x.bytes == y.bytes; });
}

bool is_message(const Communication& c) {
  return c.collective == Collective::send_recv;
}

// Members of one class carry out the same operation; those of several classes have operations of their own, which share
// the number of the transfer.
std::int64_t identity_of(OpId operation, const Communication& c) {
  return c.transfer >= 0 ? 2 * std::int64_t{c.transfer} + 1 : 2 * std::int64_t{operation.value};
}

}  // namespace

// Predictions for a library choose between algorithms too, but only it knows which one it takes.
TransferBinder::TransferBinder(const RankView& view, const ParameterStates& parameters)
    : view_(view),
      parameters_(parameters),
      queues_(view.plan()),
      library_(view.memory().is_of_device() && view.plan().cluster.execution.collectives == CollectiveMaker::library) {}

TransferBinder::Ends TransferBinder::ends(const Operation& op, MicroBatch micro_batch) const {
  Ends ends;
  if (is_message(*op.communication)) {
    add_message(op, micro_batch, ends);
  } else if (op.rule != Substitution::none && is_layer_traffic(op)) {
    add_layer_leg(op, micro_batch, ends);
  } else if (op.rule != Substitution::none) {
    add_leg(op, micro_batch, ends);
  } else if (gathers_gradient(op)) {
    add_shards(op, micro_batch, ends);
  } else if (op.role == Role::grad_exchange || op.role == Role::grad_gather) {
    add_encoded(op, micro_batch, ends);
  } else if (op.role == Role::node_reduce || op.role == Role::node_gather) {
    add_node_shards(op, micro_batch, ends);
  } else if (op.communication->collective == Collective::all_reduce) {
    add_whole_values(op, micro_batch, ends);
  } else if (op.role == Role::grad_reduce || op.role == Role::param_gather) {
    add_shards(op, micro_batch, ends);
  } else if (op.communication->collective == Collective::all_to_all) {
    add_exchange(op, micro_batch, ends);
  } else {
    add_rows(op, micro_batch, ends);
  }
  return ends;
}

void TransferBinder::add_whole_values(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  for (const Origin& origin : op.origins) {
    const Operation& original = view_.original().op(origin.operation);
    const bool of_gradients = original.phase == Phase::optimizer && original.role != Role::norm_reduce &&
                              original.role != Role::curvature_reduce;
    const auto part = [&](ValueId value) {
      const std::int64_t elements = view_.original().value(value).elements();
      const Vector whole =
          of_gradients ? gradient_in(original, value) : Vector{view_.data(value, micro_batch), elements};
      const ElementRange range = overlap(part_range(elements, origin), {0, whole.size});
      return segment_of(whole.data + range.begin, std::max<std::int64_t>(0, range.size()));
    };
    ends.input.push_back(part(read_of(original, Operand::payload)));
    ends.output.push_back(part(write_of(original, Operand::payload)));
  }
  ends.in_place = same_places(ends.input, ends.output);
}

// Returns a gradient between backward and the update: whole, or this rank's shard, which may lie in the whole's memory.
Vector TransferBinder::gradient_in(const Operation& original, ValueId value) const {
  const ParameterState& p = parameters_.of(original.layer, original.subject);
  if (view_.original().value(value).elements() >= p.elements) return {view_.data(value), p.elements};
  return parameters_.shard_in(p, value, kOncePerStep, view_.position_in(p.group));
}

// Members hold equal shares of the rows of every value: in their order, or (context parallelism) each the rows of the
// positions that it holds. A member's share of the buffer is its rows of the first value, then of the next.
void TransferBinder::add_rows(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const Origin& origin = op.origins.front();
  const Operation& original = view_.original().op(origin.operation);
  const bool scatters = op.communication->collective == Collective::reduce_scatter;
  std::vector<std::vector<Segment>> of_members(view_.group_size(op.communication->group));
  std::vector<Segment> own;
  for (const auto& [read, written] : carried_by(original)) {
    const ValueId share = scatters ? written : read;
    const auto shares = shares_of(original, origin, share, scatters ? read : written, micro_batch);
    for (std::size_t m = 0; m < shares.size(); ++m) {
      of_members[m].insert(of_members[m].end(), shares[m].begin(), shares[m].end());
    }
    const ElementRange part = part_range(view_.original().value(share).elements(), origin);
    own.push_back(segment_of(view_.data(share, micro_batch) + part.begin, part.size()));
  }
  std::vector<Segment> all;
  for (const std::vector<Segment>& of_member : of_members) {
    ends.slices.push_back(elements_in(of_member, op.communication->format));
    all.insert(all.end(), of_member.begin(), of_member.end());
  }
  WEFT_CHECK(elements_in(own, op.communication->format) == ends.slices[view_.position_in(op.communication->group)]);
  ends.input = scatters ? all : own;
  ends.output = scatters ? own : all;
}

// Adds blocks of slots, as many for each member, in the order of members on both sides: all of their rows, those of a
// part of every expert's capacity, or (then both sides have a table too) those that are there.
void TransferBinder::add_exchange(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const Origin& part = op.origins.front();
  const Operation& original = view_.original().op(part.operation);
  const ValueId read = read_of(original, Operand::payload), written = write_of(original, Operand::payload);
  SlotUse use = slot_use(view_, original, micro_batch, part);
  const ExpertRowRanges& experts = view_.expert_row_ranges();
  const auto blocks = [&](ValueId value) {
    const Value& of = view_.original().value(value);
    const ElementPointer data = view_.data(value, micro_batch);
    if (!use.is_fixed()) return std::vector<Segment>{segment_of(data, of.elements())};
    std::vector<Segment> segments;
    const std::int64_t width = of.shape.back();
    std::int64_t first = 0;
    for (const ElementRange& rows : use.ranges()) {
      segments.push_back(segment_of(data + (first + rows.begin) * width, rows.size() * width));
      first += experts.capacity(original);
    }
    return segments;
  };
  ends.input = blocks(read);
  ends.output = blocks(written);
  if (!use.is_data()) return;
  if (use.tables().size() != 1) {
    fail("'{}' is cut otherwise than the way to the experts: weft run cannot carry it out", describe(op));
  }
  ExpertTable& ranges = *use.tables().front();
  const bool returns = returns_rows(original);
  ends.input.push_back(segment_of(returns ? ranges.incoming : ranges.outgoing));
  ends.output.push_back(segment_of(returns ? ranges.outgoing : ranges.incoming));
  ends.uneven =
      UnevenBlocks{.blocks = experts.experts() / experts.ranks(),
                   .units = experts.capacity(original),
                   .unit_bytes = wire_bytes(view_.original().value(read).shape.back(), op.communication->format).value,
                   .known = returns};
}

// `share` is the value of one member. It says how the rows of the whole are shared out.
std::vector<std::vector<Segment>> TransferBinder::shares_of(const Operation& original, const Origin& part,
                                                            ValueId share, ValueId whole,
                                                            MicroBatch micro_batch) const {
  const GroupKind group = original.communication->group;
  const Value& value = view_.original().value(whole);
  const Share how = view_.original().value(share).sharding.rows_over(axis_of(group)).value_or(Share::blocks);
  const std::int64_t n = view_.group_size(group), rows = value.shape.front(), width = value.elements() / rows;
  const ElementPointer data = view_.data(whole, micro_batch);
  std::vector<std::vector<Segment>> shares;
  for (std::int64_t r = 0; r < n; ++r) {
    std::vector<Segment>& of_member = shares.emplace_back();
    for (const ElementRange& range :
         rows_of_share(how, {rows, view_.plan().layout.micro_batch}, {r, n}, part_range(rows / n, part))) {
      of_member.push_back(segment_of(data + range.begin * width, range.size() * width));
    }
  }
  return shares;
}

// Where tensor-parallel ranks hold the same rows, each sends its own share of them.
void TransferBinder::add_message(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const Operation& original = view_.original().op(op.origins.front().operation);
  const std::int64_t sent = elements_in(op.communication->bytes, op.communication->format);
  if (!op.communication->sends) {
    ends.output.push_back(segment_of(view_.data(write_of(original, Operand::payload), micro_batch), sent));
    return;
  }
  const ValueId value = read_of(original, Operand::payload);
  const bool whole = view_.original().value(value).elements() == sent;
  const std::int64_t begin = whole ? 0 : view_.coordinate(Axis::tp) * sent;
  ends.input.push_back(segment_of(view_.data(value, micro_batch) + begin, sent));
}

// Encoded shards have equal sizes and lie in the order of the members on both sides.
void TransferBinder::add_encoded(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const Operation& original = view_.original().op(op.origins.front().operation);
  const auto whole = [&](ValueId value) {
    return segment_of(view_.data(value, micro_batch), view_.original().value(value).elements());
  };
  ends.input.push_back(whole(read_of(original, Operand::payload)));
  ends.output.push_back(whole(write_of(original, Operand::payload)));
  ends.in_place = same_places(ends.input, ends.output);  // factors of low rank, which are summed
  if (op.communication->collective != Collective::all_gather) return;
  ends.slices.assign(view_.members(*op.communication).size(), elements_in(ends.input, op.communication->format));
}

// Inside a node, member j has shards j, N + j, 2 N + j, ... of every gradient. Once a step they lie in the memory of
// the whole; what ZeRO 2 and 3 sum in every micro-batch goes to a place of its own, one full shard behind the other.
void TransferBinder::add_node_shards(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const GroupKind group = op.communication->group;
  const std::int64_t inner = view_.inner_size(group), n = view_.group_size(group);
  for (std::int64_t member = 0; member < inner; ++member) {
    std::vector<Segment> of_member;
    for (const Origin& origin : op.origins) {
      const Operation& original = view_.original().op(origin.operation);
      const ParameterState& p = parameters_.of(original.layer, original.subject);
      const ElementPointer in = view_.data(read_of(original, Operand::payload), micro_batch);
      const ElementPointer out = view_.data(write_of(original, Operand::payload), micro_batch);
      if (!op.per_micro_batch && in != out) {
        fail("'{}': the plan places its sums apart from the gradient; weft run works in place", describe(op));
      }
      const bool own = member == view_.position_in(group) % inner;
      for (std::int64_t position = member; position < n; position += inner) {
        const ElementRange range = view_.shard(p.elements, group, position);
        of_member.push_back(segment_of(in + range.begin, range.size()));
        if (!own || !op.per_micro_batch) continue;
        ends.output.push_back(segment_of(out + position / inner * ((p.elements + n - 1) / n), range.size()));
      }
    }
    ends.slices.push_back(elements_in(of_member, op.communication->format));
    ends.input.insert(ends.input.end(), of_member.begin(), of_member.end());
  }
  ends.in_place = !op.per_micro_batch;
  if (ends.in_place) ends.output = ends.input;
}

// The sender of a message comes first.
std::vector<std::int64_t> TransferBinder::members(const Communication& c) const {
  std::vector<std::int64_t> ranks = view_.members(c);
  if (is_message(c) && !c.sends) std::swap(ranks.front(), ranks.back());
  return ranks;
}

std::int64_t TransferBinder::queue(OpId id) const {
  const std::int32_t number =
      queues_.number(view_.plan().graph.op(id).rank_class, view_.plan().issues[id.index()].queue);
  if (number >= kLossQueue) fail("the plan shares more than {} queues between its rank classes", kLossQueue);
  return number;
}

// The buffer of the whole is the members' shares one after the other, each with its shard of every parameter.
void TransferBinder::add_shards(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const GroupKind group = op.communication->group;
  const bool scatters = op.communication->collective == Collective::reduce_scatter;
  const std::int64_t n = view_.group_size(group), self = view_.position_in(group);
  std::vector<std::vector<Segment>> whole(n);
  std::vector<Segment> own;
  for (const Origin& origin : op.origins) {
    const Operation& original = view_.original().op(origin.operation);
    const ParameterState& p = parameters_.of(original.layer, original.subject);
    const ValueId read = read_of(original, Operand::payload), written = write_of(original, Operand::payload);
    const bool encoded = op.communication->format.type == ElementType::u8;
    const auto piece = [&](ValueId value, std::int64_t position) {
      if (encoded) {  // encoded shards have equal sizes
        const std::int64_t bytes = view_.original().value(read).elements();
        return segment_of(view_.data(value, micro_batch) + (value == read ? 0 : position * bytes), bytes);
      }
      const Vector shard = parameters_.shard_in(p, value, micro_batch, position, group);
      const ElementRange part = part_range((p.elements + n - 1) / n, origin);
      const std::int64_t begin = std::min(part.begin, shard.size), end = std::min(part.end, shard.size);
      return segment_of(shard.data + begin, end - begin);
    };
    for (std::int64_t r = 0; r < n; ++r) {
      whole[r].push_back(piece(scatters ? read : written, r));
    }
    own.push_back(piece(scatters ? written : read, self));
  }
  ends.in_place = same_places(own, whole[self]);
  std::vector<Segment> all;
  for (const std::vector<Segment>& share : whole) {
    ends.slices.push_back(elements_in(share, op.communication->format));
    all.insert(all.end(), share.begin(), share.end());
  }
  ends.input = scatters || ends.in_place ? all : own;
  ends.output = scatters && !ends.in_place ? own : all;
}

// A leg works on shares of the elements of every parameter (exec/leg_shares.hpp). Once a step all of them lie in
// the memory of the whole. What ZeRO-2 and 3 reduce and gather in every micro-batch has a place of its own between the
// legs, and the shard that it ends in or begins with one more.
void TransferBinder::add_leg(const Operation& op, MicroBatch micro_batch, Ends& ends) const {
  const GroupKind group = op.communication->group;
  const bool gathers = op.communication->collective == Collective::all_gather;
  const std::int64_t members = std::ssize(view_.members(*op.communication));
  const LevelSizes levels = has_levels(rule_of(op.rule)) ? view_.level_sizes(*op.communication) : LevelSizes{};
  const LegShares shares{.rule = op.rule,
                         .scope = op.communication->scope,
                         .ranks = view_.group_size(group),
                         .inner = levels.inner,
                         .position = view_.position_in(group),
                         .middle = levels.middle};
  const std::vector<Carried> carried = carried_by(op);
  WEFT_CHECK(carried.size() == op.origins.size());
  // A reduction goes from the whole to the shard, a gather back: its first leg is the mirror image of the other's last.
  // So many levels are reduced already, or still to be gathered, beside this one.
  const std::int64_t legs = std::ssize(rule_of(op.rule).legs), below = gathers ? legs - 1 - op.leg : op.leg;
  std::vector<std::vector<Segment>> whole(members);
  std::vector<Segment> own;
  for (std::size_t i = 0; i < op.origins.size(); ++i) {
    const Operation& original = view_.original().op(op.origins[i].operation);
    const ParameterState& p = parameters_.of(original.layer, original.subject);
    const ElementPointer in = view_.data(carried[i].read, micro_batch);
    const ElementPointer out = view_.data(carried[i].written, micro_batch);
    if (!op.per_micro_batch && in != out) {
      fail("'{}': the plan places what its legs work on apart; weft run works in place", describe(op));
    }
    const auto segment = [](const ElementPointer& begin, const ElementRange& range) {
      return segment_of(begin + range.begin, range.size());
    };
    for (std::int64_t m = 0; m < members; ++m) {
      for (const ElementRange& range : op.per_micro_batch ? shares.of_member_between(p.elements, below, m)
                                                          : shares.of_member(p.elements, op.origins[i], m)) {
        whole[m].push_back(segment(gathers ? out : in, range));
      }
    }
    if (!op.per_micro_batch) continue;
    const ElementPointer share = gathers ? in : out;
    if (below + 1 < legs) {
      for (const ElementRange& range : shares.between(p.elements, below + 1)) own.push_back(segment(share, range));
    } else {
      own.push_back(segment(share, {0, view_.own_shard(p.elements, group).size()}));
    }
  }
  if (op.communication->collective == Collective::all_reduce) {
    ends.in_place = true;
    ends.input = ends.output = whole.front();  // all members have the same share
    return;
  }
  std::vector<Segment> all;
  for (const std::vector<Segment>& share : whole) {
    ends.slices.push_back(elements_in(share, op.communication->format));
    all.insert(all.end(), share.begin(), share.end());
  }
  ends.in_place = !op.per_micro_batch;
  ends.input = gathers && !ends.in_place ? own : all;
  ends.output = gathers || ends.in_place ? all : own;
}

TransferCall TransferBinder::call(OpId id) const {
  const Operation& op = view_.plan().graph.op(id);
  const Communication& c = *op.communication;
  const Ends places = ends(op, MicroBatch{0});
  TransferCall result;
  if (c.mover.copy_engine && c.mover.thread_blocks == 0) {
    fail("'{}' is moved by copy engines: weft run has thread blocks alone", describe(op));
  }
  // Userbuffers' ring exchanges (graph/userbuffers.hpp) are the library's gathers and reductions in a run.
  const bool says_blocks = c.mover.thread_blocks > 0 && !c.mover.copy_engine;
  result.call.thread_blocks = says_blocks ? c.mover.thread_blocks : view_.plan().thread_blocks;
  result.in_place = places.in_place;
  result.call.type = c.format.type;
  if (places.uneven) {
    result.call.spec = {
        .kind = c.collective, .ranks = std::ssize(view_.members(c)), .pieces = std::ssize(view_.members(c))};
    result.call.uneven = places.uneven;
    result.call.segments = 2;
    result.call.members = members(c);
    result.call.queue = queue(id);
    result.call.label = describe(op);
    result.call.identity = identity_of(id, c);
    return result;
  }
  const std::int64_t ranks = std::ssize(view_.members(c));
  const bool by_library = c.algorithm == Algorithm::native || (library_ && c.algorithm != Algorithm::carried);
  if (by_library && ranks > 1) {
    result.call.spec = {.kind = c.collective, .ranks = ranks, .pieces = is_divided(c.collective) ? ranks : 1};
  } else {
    std::optional<Program> program = transfer_program(c, ranks, places.in_place);
    if (!program) {
      fail("'{}' has no program {}: {}", describe(op), places.in_place ? "in place" : "with two buffers",
           program_in_words(c));
    }
    if (std::ssize(program->ranks) != ranks) {
      fail("'{}' is carried out by {}, which has steps in switches: no transport here makes sums there", describe(op),
           program_in_words(c));
    }
    result.call.program = std::make_shared<const Program>(std::move(*program));
    result.call.spec = result.call.program->spec;
  }
  result.call.sizes =
      places.slices.empty()
          ? even_sizes(result.call.spec, elements_in(places.output.empty() ? places.input : places.output, c.format))
          : sliced_sizes(result.call.spec, places.slices);
  result.call.members = members(c);
  result.call.queue = queue(id);
  result.call.label = describe(op);
  result.call.identity = identity_of(id, c);
  result.call.segments = std::ssize(places.input.size() > places.output.size() ? places.input : places.output);
  return result;
}

BoundTransfer TransferBinder::bind(OpId id, MicroBatch micro_batch) const {
  const Operation& op = view_.plan().graph.op(id);
  Ends places = ends(op, micro_batch);
  BoundTransfer bound;
  bound.input = std::move(places.input);
  bound.output = std::move(places.output);
  if (!op.per_micro_batch || op.communication->collective != Collective::reduce_scatter) return bound;
  const std::vector<Carried> carried = carried_by(op);
  if (!view_.plan().graph.value(carried.front().written).accumulated) return bound;
  // One segment of the output per origin. Some sums may begin here while others go on: those begin with zeros.
  for (std::size_t i = 0; i < op.origins.size(); ++i) {
    const ValueId sum = carried[i].written;
    if (view_.writes_first(sum, id, micro_batch)) {
      bound.clear.push_back(bound.output[i]);
    } else {
      bound.accumulate = true;
    }
  }
  if (!bound.accumulate) bound.clear.clear();
  return bound;
}

}  // namespace weft
