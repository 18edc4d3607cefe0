#include "exec/bind_transfer.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "collective/piece_sizes.hpp"
#include "graph/transfer_program.hpp"

namespace weft {
namespace {

Segment segment_of(float* data, std::int64_t elements) {
  return {reinterpret_cast<std::byte*>(data), elements * static_cast<std::int64_t>(sizeof(float))};
}

// The elements of `size` that a part of an operation is about.
ElementRange part_of(const Origin& origin, std::int64_t size) {
  return {part_begin(size, origin.of, origin.begin), part_begin(size, origin.of, origin.end)};
}

bool same_places(const std::vector<Segment>& a, const std::vector<Segment>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Segment& x, const Segment& y) { return x.data == y.data && x.bytes == y.bytes; });
}

std::int64_t elements_in(const std::vector<Segment>& segments) {
  std::int64_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.bytes;
  return bytes / static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

std::int64_t queue_number(const Plan& plan, ClassId rank_class, std::int32_t queue) {
  std::set<std::string> names;
  for (const ClassPlan& c : plan.classes) {
    for (const Queue& q : c.queues) names.insert(q.name);
  }
  const std::string& name = plan.classes[rank_class.index()].queues[static_cast<std::size_t>(queue)].name;
  return std::distance(names.begin(), names.find(name));
}

TransferBinder::TransferBinder(const RankView& view, const ParameterStates& parameters)
    : view_(view), parameters_(parameters) {}

TransferBinder::Ends TransferBinder::ends(const Operation& op, std::int32_t micro_batch) const {
  Ends ends;
  if (op.communication->collective == Collective::all_reduce) {
    add_whole_values(op, micro_batch, ends);
  } else if (op.role == Role::grad_reduce || op.role == Role::param_gather) {
    add_shards(op, micro_batch, ends);
  } else {
    fail("weft run cannot carry out '{}' yet", describe(op));
  }
  return ends;
}

void TransferBinder::add_whole_values(const Operation& op, std::int32_t micro_batch, Ends& ends) const {
  for (const Origin& origin : op.origins) {
    const Operation& original = view_.original().op(origin.operation);
    WEFT_CHECK(original.reads.size() == 1 && original.writes.size() == 1);
    const ValueId in = original.reads.front().value, out = original.writes.front();
    const ElementRange range = part_of(origin, view_.original().value(in).elements());
    ends.input.push_back(segment_of(view_.data(in, micro_batch) + range.begin, range.size()));
    ends.output.push_back(segment_of(view_.data(out, micro_batch) + range.begin, range.size()));
  }
  ends.in_place = same_places(ends.input, ends.output);
}

// The buffer of the whole is the members' shares one after the other, each with its shard of every parameter.
void TransferBinder::add_shards(const Operation& op, std::int32_t micro_batch, Ends& ends) const {
  const GroupKind group = op.communication->group;
  const bool scatters = op.communication->collective == Collective::reduce_scatter;
  const std::int64_t n = view_.group_size(group), self = view_.position_in(group);
  std::vector<std::vector<Segment>> whole(static_cast<std::size_t>(n));
  std::vector<Segment> own;
  for (const Origin& origin : op.origins) {
    const Operation& original = view_.original().op(origin.operation);
    const ParameterState& p = parameters_.of(original.layer, original.subject);
    const ValueId read = original.reads.front().value, written = original.writes.front();
    const auto piece = [&](ValueId value, std::int64_t position) {
      const Vector shard = parameters_.shard_in(p, value, micro_batch, position);
      const ElementRange part = part_of(origin, (p.elements + n - 1) / n);
      const std::int64_t begin = std::min(part.begin, shard.size), end = std::min(part.end, shard.size);
      return segment_of(static_cast<float*>(shard.data) + begin, end - begin);
    };
    for (std::int64_t r = 0; r < n; ++r) {
      whole[static_cast<std::size_t>(r)].push_back(piece(scatters ? read : written, r));
    }
    own.push_back(piece(scatters ? written : read, self));
  }
  ends.in_place = same_places(own, whole[static_cast<std::size_t>(self)]);
  std::vector<Segment> all;
  for (const std::vector<Segment>& share : whole) {
    ends.slices.push_back(elements_in(share));
    all.insert(all.end(), share.begin(), share.end());
  }
  ends.input = scatters || ends.in_place ? all : own;
  ends.output = scatters && !ends.in_place ? own : all;
}

TransferCall TransferBinder::call(OpId id) const {
  const Operation& op = view_.plan().graph.op(id);
  const Communication& c = *op.communication;
  const Ends places = ends(op, 0);
  TransferCall result;
  result.in_place = places.in_place;
  std::optional<ProgramRequest> request = program_of(c, view_.group_size(c.group));
  if (!request) fail("'{}' has no program: {}", describe(op), program_in_words(c));
  request->in_place = places.in_place;
  result.call.program = std::make_shared<const Program>(make_program(*request));
  result.call.spec = result.call.program->spec;
  result.call.sizes = places.slices.empty() ? even_sizes(result.call.spec, elements_in(places.output))
                                            : sliced_sizes(result.call.spec, places.slices);
  result.call.members = view_.members(c.group);
  result.call.queue = queue_number(view_.plan(), op.rank_class, view_.plan().issues[id.index()].queue);
  result.call.label = describe(op);
  result.call.segments = std::ssize(places.input.size() > places.output.size() ? places.input : places.output);
  return result;
}

BoundTransfer TransferBinder::bind(OpId id, std::int32_t micro_batch) const {
  const Operation& op = view_.plan().graph.op(id);
  Ends places = ends(op, micro_batch);
  BoundTransfer bound;
  bound.input = std::move(places.input);
  bound.output = std::move(places.output);
  if (!op.per_micro_batch || op.communication->collective != Collective::reduce_scatter) return bound;
  // One segment of the output per origin. Some sums may begin here while others go on: those begin with zeros.
  for (std::size_t i = 0; i < op.origins.size(); ++i) {
    const ValueId sum = view_.original().op(op.origins[i].operation).writes.front();
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
