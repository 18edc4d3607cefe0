#include "graph/transfer_part.hpp"

#include "base/error.hpp"
#include "collective/piece_sizes.hpp"

namespace weft {

bool is_whole(const Origin& origin) {
  return origin.begin == 0 && origin.end == origin.of;
}

bool is_part(const Operation& operation) {
  return operation.origins.size() == 1 && !is_whole(operation.origins.front());
}

bool may_be_cut(const StepGraph& graph, const Operation& op) {
  if (!op.communication || op.per_micro_batch || op.reads.size() != 1 || op.writes.size() != 1) return false;
  if (op.role != Role::grad_reduce && op.role != Role::param_gather) return false;
  const Collective kind = op.communication->collective;
  if (kind != Collective::all_reduce && kind != Collective::reduce_scatter && kind != Collective::all_gather) {
    return false;
  }
  return cut_length(graph, op).elements > 0;
}

CutLength cut_length(const StepGraph& graph, const Operation& op) {
  WEFT_CHECK(op.communication && op.reads.size() == 1 && op.writes.size() == 1);
  // The smaller of the two values: all of it, or a shard.
  const bool scatters = op.communication->collective == Collective::reduce_scatter;
  const Value& value = graph.value(scatters ? op.writes.front() : op.reads.front().value);
  const bool shards = op.communication->collective != Collective::all_reduce;
  const std::int64_t ranks = shards ? graph.classes[op.rank_class.index()].group(op.communication->group).view.size : 1;
  return {value.elements(), ranks * bytes_of(value.dtype)};
}

ElementRange part_range(std::int64_t elements, const Origin& part) {
  return {part_begin(elements, part.of, part.begin), part_begin(elements, part.of, part.end)};
}

Bytes part_bytes(const StepGraph& graph, const Operation& whole, const Origin& part) {
  const CutLength length = cut_length(graph, whole);
  return {part_range(length.elements, part).size() * length.bytes_each};
}

}  // namespace weft
