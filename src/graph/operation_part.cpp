#include "graph/operation_part.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "collective/piece_sizes.hpp"
#include "graph/own_rows.hpp"

namespace weft {
namespace {

// Replicas of shards sum what micro-batches have accumulated. What a reduction of the same step leaves is summed whole:
// parts of both in one buffer would meet.
bool sums_accumulated_shards(const StepGraph& graph, const Operation& op) {
  return op.role == Role::shard_reduce && graph.value(read_of(op, Operand::payload)).accumulated;
}

bool is_cut_by_elements(const StepGraph& graph, const Operation& op) {
  if (op.per_micro_batch || !carries_one_value(op)) return false;
  if (op.role != Role::grad_reduce && op.role != Role::param_gather && !sums_accumulated_shards(graph, op))
    return false;
  if (op.communication->format.type == ElementType::u8) return false;  // encoded weights travel whole
  const Collective kind = op.communication->collective;
  if (kind != Collective::all_reduce && kind != Collective::reduce_scatter && kind != Collective::all_gather) {
    return false;
  }
  return cut_length(graph, op).elements > 0;
}

// A weight gradient is a sum over all rows, so what is gathered again for it is read whole.
bool is_of_rows(const StepGraph& graph, const Operation& op) {
  if (!op.per_micro_batch || graph.tokens.rows == 0) return false;
  return op.phase != Phase::weight_grad && op.phase != Phase::optimizer;
}

bool is_cut_by_rows(const StepGraph& graph, const Operation& op) {
  if (!is_of_rows(graph, op)) return false;
  if (works_on_slots(op)) return graph.tokens.routed.in_token_order;
  switch (op.role) {
    case Role::attention_norm:
    case Role::attention_gather:
    case Role::qkv:
    case Role::kv:
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
    case Role::router:
    case Role::shared_in:
    case Role::shared_act:
    case Role::shared_out:
    case Role::shared_sum:
    case Role::final_norm:
    case Role::head_gather:
    case Role::head:
      return true;
    case Role::loss:
      return !find_write(op, Operand::loss_parts).valid() && !find_read(op, Operand::loss_parts).valid();
    case Role::gate:
      return graph.tokens.routed.in_token_order;
    case Role::attention:
      return graph.tokens.sequences > 0;
    default:
      return false;
  }
}

bool is_cut_by_capacity(const StepGraph& graph, const Operation& op) {
  return is_of_rows(graph, op) && works_on_slots(op) && op.role != Role::dispatch && op.role != Role::combine;
}

// Slots that balanced loads fill, of all slots.
struct Filled {
  std::int64_t copies = 1, slots = 1;
};
Filled filled(const StepGraph& graph) {
  return {graph.tokens.rows * graph.tokens.routed.top_k, graph.tokens.routed.slots()};
}

// Returns a * b / c without intermediate overflow, or -1 where that is no whole number.
std::int64_t exact_ratio(std::int64_t a, std::int64_t b, std::int64_t c) {
  __extension__ using Wide = __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return c > 0 && product % c == 0 ? static_cast<std::int64_t>(product / c) : -1;
}

bool has_expected_sizes(const Operation& op, std::int32_t axis) {
  return axis == kTokenAxis && works_on_slots(op);
}

// Whether a value is the loads of all experts, which only the gate writes, and reads in backward.
bool is_expert_load(const Operation& op, ValueId value) {
  return find_write(op, Operand::loads) == value || find_read(op, Operand::loads) == value;
}

// In the inner groups of reduce_scatter and all_gather in levels a member's share is one shard for every inner group,
// of three levels in the middle groups one for every middle group; of all_reduce in three levels in the inner groups
// one slice for every place of a middle group. A part takes its range of each, so that it covers the same elements in
// all legs.
std::int64_t shards_side_by_side(const ClassGroup& group, const Operation& op) {
  const auto [scope, levels] = std::pair(op.communication->scope, op.communication->levels);
  switch (op.rule) {
    case Substitution::reduce_scatter_in_levels:
    case Substitution::all_gather_in_levels:
      return scope == Scope::inner ? group.scoped(Scope::outer, levels).view.size : 1;
    case Substitution::reduce_scatter_in_three_levels:
    case Substitution::all_gather_in_three_levels:
      if (scope == Scope::middle) return group.scoped(Scope::top, levels).view.size;
      return scope == Scope::inner ? group.scoped(Scope::outer, levels).view.size : 1;
    case Substitution::all_reduce_in_three_levels:
      return scope == Scope::inner ? group.scoped(Scope::middle, levels).view.size : 1;
    default:
      return 1;
  }
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

bool works_on_slots(const Operation& op) {
  switch (op.role) {
    case Role::dispatch:
    case Role::expert_dispatch:
    case Role::expert_in:
    case Role::expert_act:
    case Role::expert_out:
    case Role::expert_combine:
    case Role::combine:
      return op.per_micro_batch && op.phase != Phase::weight_grad;
    default:
      return false;
  }
}

bool may_be_cut(const StepGraph& graph, const Operation& op) {
  return is_cut_by_rows(graph, op) || is_cut_by_capacity(graph, op) || is_cut_by_elements(graph, op);
}

bool may_be_cut_into(const StepGraph& graph, const Operation& op, std::int64_t parts, std::int32_t axis) {
  if (parts < 2) return false;
  if (axis == kCapacityAxis) {
    return is_cut_by_capacity(graph, op) && parts <= kMaxRowCuts && graph.tokens.routed.capacity % parts == 0;
  }
  if (axis == kOwnFirstAxis) {
    return parts <= kMaxRowCuts + 1 && graph.tokens.rows % (parts - 1) == 0 && may_begin_with_own_rows(graph, op);
  }
  if (axis != kTokenAxis) return false;
  if (is_cut_by_elements(graph, op)) return parts <= std::min(kMaxCuts, cut_length(graph, op).elements);
  if (!is_cut_by_rows(graph, op) || parts > kMaxRowCuts) return false;
  if (works_on_slots(op) && exact_ratio(op.key.dims[0], filled(graph).copies, filled(graph).slots * parts) < 1) {
    return false;
  }
  const std::int64_t length = op.role == Role::attention ? graph.tokens.sequences : graph.tokens.rows;
  return length % parts == 0;
}

Operation with_balanced_load(const StepGraph& graph, const Operation& op) {
  Operation result = op;
  if (!works_on_slots(op) || !is_cut_by_rows(graph, op)) return result;
  __extension__ using Wide = __int128;
  const Filled share = filled(graph);
  result.key.dims[0] = static_cast<std::int64_t>(static_cast<Wide>(op.key.dims[0]) * share.copies / share.slots);
  if (result.communication) result.communication->bytes = {result.key.dims[0]};
  return result;
}

CutLength cut_length(const StepGraph& graph, const Operation& op) {
  WEFT_CHECK(carries_one_value(op));
  // The smaller of the two values: all of it, or a shard.
  const bool scatters = op.communication->collective == Collective::reduce_scatter;
  const Value& value = graph.value(scatters ? write_of(op, Operand::payload) : read_of(op, Operand::payload));
  const ClassGroup& group = graph.classes[op.rank_class.index()].group(op.communication->group);
  const bool shards = op.communication->collective != Collective::all_reduce;
  const std::int64_t ranks = shards ? group.scoped(op.communication->scope, op.communication->levels).view.size : 1;
  const std::int64_t blocks = shards_side_by_side(group, op);
  return {value.elements() / blocks, blocks * ranks};
}

ElementRange part_range(std::int64_t elements, const Origin& part) {
  return {part_begin(elements, part.of, part.begin), part_begin(elements, part.of, part.end)};
}

std::int64_t part_size(const StepGraph& graph, const Operation& whole, const Origin& part) {
  if (whole.per_micro_batch && has_expected_sizes(whole, part.axis)) {
    const Filled share = filled(graph);
    return exact_ratio(whole.key.dims[0], share.copies * (part.end - part.begin), share.slots * part.of);
  }
  if (part.axis == kOwnFirstAxis && !is_whole(part)) return rows_of_part(whole.key.dims[0], graph.tokens.shards, part);
  if (whole.per_micro_batch) return part_range(whole.key.dims[0], part).size();
  const CutLength length = cut_length(graph, whole);
  return wire_bytes(part_range(length.elements, part).size() * length.transferred_each, whole.communication->format)
      .value;
}

Operation with_all_rows(const StepGraph& graph, const Operation& part) {
  const Origin& origin = part.origins.front();
  if (origin.axis == kOwnFirstAxis) {
    Operation whole = is_own_piece(origin) ? reading_gathered_rows(graph, part) : part;
    whole.key.dims[0] = rows_of_whole(part.key.dims[0], graph.tokens.shards, origin);
    return whole;
  }
  Operation whole = part;
  whole.key.dims[0] = part.key.dims[0] / (origin.end - origin.begin) * origin.of;
  if (has_expected_sizes(part, origin.axis)) {
    whole.key.dims[0] = exact_ratio(whole.key.dims[0], filled(graph).slots, filled(graph).copies);
  }
  const ValueId extra = handed_on(part, origin);
  std::erase_if(whole.reads, [&](const Read& read) { return read.value == extra; });
  if (whole.communication) whole.communication->bytes = {whole.key.dims[0]};
  return whole;
}

ValueId handed_on(const Operation& whole, const Origin& part) {
  if (is_whole(part) || part.begin == 0) return {};
  return find_write(whole, Operand::loads);
}

Slice slice_of(const StepGraph& graph, const Operation& op, ValueId value) {
  if (!is_part(op) || (op.per_micro_batch && !has_rows(graph.value(value)))) return {};
  const Origin& part = op.origins.front();
  return {part.begin, part.end, part.of, part.axis};
}

Slice read_slice_of(const StepGraph& graph, const Operation& op, ValueId value) {
  if (is_part(op) && is_expert_load(op, value)) {
    if (op.phase == Phase::input_grad) return {};
    const Origin& part = op.origins.front();
    return {0, part.begin, part.of, part.axis};
  }
  if (is_part(op) && op.origins.front().axis == kOwnFirstAxis && has_rows(graph.value(value))) {
    // The own piece reads all of a shard, the others what a part of the gather brings.
    const Origin& part = op.origins.front();
    return is_own_piece(part) ? Slice{} : Slice{part.begin - 1, part.end - 1, part.of - 1, kTokenAxis};
  }
  return slice_of(graph, op, value);
}

}  // namespace weft
