#include "graph/operation_part.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "collective/piece_sizes.hpp"

namespace weft {
namespace {

bool is_cut_by_elements(const StepGraph& graph, const Operation& op) {
  if (!op.communication || op.per_micro_batch || op.reads.size() != 1 || op.writes.size() != 1) return false;
  if (op.role != Role::grad_reduce && op.role != Role::param_gather) return false;
  const Collective kind = op.communication->collective;
  if (kind != Collective::all_reduce && kind != Collective::reduce_scatter && kind != Collective::all_gather) {
    return false;
  }
  return cut_length(graph, op).elements > 0;
}

// A weight gradient is a sum over rows, and what is gathered again for it is read whole.
bool is_cut_by_rows(const StepGraph& graph, const Operation& op) {
  if (!op.per_micro_batch || op.layer < 0 || graph.tokens.rows == 0) return false;
  if (op.phase == Phase::weight_grad || op.phase == Phase::optimizer) return false;
  switch (op.role) {
    case Role::attention_norm:
    case Role::attention_gather:
    case Role::qkv:
    case Role::attention_out:
    case Role::attention_reduce:
    case Role::attention_residual:
    case Role::ffn_norm:
    case Role::ffn_gather:
    case Role::ffn_in:
    case Role::ffn_act:
    case Role::ffn_out:
    case Role::ffn_reduce:
    case Role::ffn_residual:
      return true;
    case Role::attention:
      return graph.tokens.sequences > 0;
    default:
      return false;
  }
}

// In the inner groups of reduce_scatter and all_gather in levels a member's share is one shard for every inner group; a
// part takes its range of each, so that it is the same elements in both stages.
std::int64_t shards_side_by_side(const ClassGroup& group, const Operation& op) {
  const bool in_levels =
      op.rule == Substitution::reduce_scatter_in_levels || op.rule == Substitution::all_gather_in_levels;
  return in_levels && op.communication->scope == Scope::inner ? group.scoped(Scope::outer).view.size : 1;
}

bool has_rows(const Value& value) {
  return value.per_micro_batch && (value.kind == ValueKind::activation || value.kind == ValueKind::activation_grad);
}

}  // namespace

bool is_whole(const Origin& origin) {
  return origin.begin == 0 && origin.end == origin.of;
}

bool is_part(const Operation& operation) {
  return operation.origins.size() == 1 && !is_whole(operation.origins.front());
}

bool may_be_cut(const StepGraph& graph, const Operation& op) {
  return is_cut_by_rows(graph, op) || is_cut_by_elements(graph, op);
}

bool may_be_cut_into(const StepGraph& graph, const Operation& op, std::int64_t parts) {
  if (parts < 2) return false;
  if (is_cut_by_elements(graph, op)) return parts <= std::min(kMaxCuts, cut_length(graph, op).elements);
  const std::int64_t length = op.role == Role::attention ? graph.tokens.sequences : graph.tokens.rows;
  return is_cut_by_rows(graph, op) && parts <= kMaxRowCuts && length % parts == 0;
}

CutLength cut_length(const StepGraph& graph, const Operation& op) {
  WEFT_CHECK(op.communication && op.reads.size() == 1 && op.writes.size() == 1);
  // The smaller of the two values: all of it, or a shard.
  const bool scatters = op.communication->collective == Collective::reduce_scatter;
  const Value& value = graph.value(scatters ? op.writes.front() : op.reads.front().value);
  const ClassGroup& group = graph.classes[op.rank_class.index()].group(op.communication->group);
  const bool shards = op.communication->collective != Collective::all_reduce;
  const std::int64_t ranks = shards ? group.scoped(op.communication->scope).view.size : 1;
  const std::int64_t blocks = shards_side_by_side(group, op);
  return {value.elements() / blocks, blocks * ranks * bytes_of(value.dtype)};
}

ElementRange part_range(std::int64_t elements, const Origin& part) {
  return {part_begin(elements, part.of, part.begin), part_begin(elements, part.of, part.end)};
}

std::int64_t part_size(const StepGraph& graph, const Operation& whole, const Origin& part) {
  if (whole.per_micro_batch) return part_range(whole.key.dims[0], part).size();
  const CutLength length = cut_length(graph, whole);
  return part_range(length.elements, part).size() * length.bytes_each;
}

Operation with_all_rows(const Operation& part) {
  Operation whole = part;
  const Origin& origin = part.origins.front();
  whole.key.dims[0] = part.key.dims[0] / (origin.end - origin.begin) * origin.of;
  if (whole.communication) whole.communication->bytes = {whole.key.dims[0]};
  return whole;
}

Slice slice_of(const StepGraph& graph, const Operation& op, ValueId value) {
  if (!is_part(op) || (op.per_micro_batch && !has_rows(graph.value(value)))) return {};
  const Origin& part = op.origins.front();
  return {part.begin, part.end, part.of};
}

}  // namespace weft
