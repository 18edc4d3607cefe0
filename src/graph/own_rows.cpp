#include "graph/own_rows.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "graph/operation_part.hpp"

namespace weft {
namespace {

bool is_entry_or_exit_of_region(Role role) {
  return role == Role::attention_gather || role == Role::ffn_gather || role == Role::attention_reduce ||
         role == Role::ffn_reduce;
}

const Operation* gather_that_writes(const StepGraph& graph, ValueId gathered) {
  for (const Operation& op : graph.operations) {
    if (gathers_rows_of_others(op) && carries_one_value(op) && write_of(op, Operand::payload) == gathered) return &op;
  }
  return nullptr;
}

void replace_read(Operation& op, Operand operand, ValueId by) {
  for (Read& read : op.reads) {
    if (read.operand == operand) read.value = by;
  }
}

}  // namespace

bool gathers_rows_of_others(const Operation& op) {
  if (!op.communication || !op.per_micro_batch || op.layer < 0 || !is_entry_or_exit_of_region(op.role)) return false;
  if (op.rule != Substitution::none) return false;  // a leg brings what other legs brought before
  // What backward gathers for a weight gradient is read whole.
  return op.communication->collective == Collective::all_gather && op.communication->group == GroupKind::tp &&
         op.phase != Phase::weight_grad;
}

std::optional<Operand> gathered_operand(const Operation& op) {
  if (!op.per_micro_batch || op.layer < 0) return std::nullopt;
  const bool forward = op.phase == Phase::forward || op.phase == Phase::recompute;
  if (forward && (op.role == Role::qkv || op.role == Role::kv || op.role == Role::ffn_in)) return Operand::input;
  const bool leaves_region = op.role == Role::attention_out || op.role == Role::ffn_out;
  if (op.phase == Phase::input_grad && leaves_region) return Operand::output_grad;
  return std::nullopt;
}

ValueId own_shard_of(const StepGraph& graph, ValueId gathered) {
  const Operation* gather = gather_that_writes(graph, gathered);
  return gather == nullptr ? ValueId{} : read_of(*gather, Operand::payload);
}

bool may_begin_with_own_rows(const StepGraph& graph, const Operation& op) {
  const std::optional<Operand> operand = gathered_operand(op);
  if (!operand || graph.tokens.shards < 2 || graph.tokens.rows == 0) return false;
  const ValueId gathered = find_read(op, *operand);
  return gathered.valid() && own_shard_of(graph, gathered).valid();
}

bool is_own_piece(const Origin& part) {
  return part.axis == kOwnFirstAxis && part.begin == 0 && !is_whole(part);
}

Operation reading_own_shard(const StepGraph& graph, const Operation& product) {
  const std::optional<Operand> operand = gathered_operand(product);
  WEFT_CHECK(operand.has_value());
  Operation own = product;
  replace_read(own, *operand, own_shard_of(graph, read_of(product, *operand)));
  return own;
}

Operation reading_gathered_rows(const StepGraph& graph, const Operation& own_piece) {
  Operation whole = own_piece;
  const std::optional<Operand> operand = gathered_operand(own_piece);
  if (!operand) return whole;
  const ValueId shard = find_read(own_piece, *operand);
  for (const Operation& op : graph.operations) {
    const bool same_place =
        op.rank_class == own_piece.rank_class && op.layer == own_piece.layer && op.phase == own_piece.phase;
    if (!same_place || !gathers_rows_of_others(op) || find_read(op, Operand::payload) != shard) continue;
    replace_read(whole, *operand, write_of(op, Operand::payload));
    break;
  }
  return whole;
}

std::int64_t rows_of_part(std::int64_t rows, std::int64_t shards, const Origin& part) {
  if (is_own_piece(part)) return rows / shards;
  return (rows - rows / shards) / (part.of - 1) * (part.end - part.begin);
}

// Plan files may name pieces that are none: such a part is of no whole.
std::int64_t rows_of_whole(std::int64_t rows_of_part, std::int64_t shards, const Origin& part) {
  if (shards < 2 || part.of < 2 || part.begin >= part.end) return 0;
  if (is_own_piece(part)) return rows_of_part * shards;
  return rows_of_part / (part.end - part.begin) * (part.of - 1) / (shards - 1) * shards;
}

double smallest_share(std::int64_t shards, std::int64_t pieces) {
  const auto n = static_cast<double>(shards);
  return std::min(1 / n, (n - 1) / n / static_cast<double>(pieces));
}

std::int64_t ring_exchange_pieces(std::int64_t shards) {
  if (shards < 2) return 1;
  const std::uint64_t steps = static_cast<std::uint64_t>(shards) - 1;
  return std::min<std::int64_t>(kMaxRowCuts, static_cast<std::int64_t>(std::bit_ceil(steps)));
}

}  // namespace weft
