#include "exec/expert_slots.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "graph/operation_part.hpp"

namespace weft {
namespace {

SlotOrder slot_order(GateOrder order) {
  switch (order) {
    case GateOrder::position:
      return SlotOrder::token;
    case GateOrder::gshard:
      return SlotOrder::choice;
    case GateOrder::probs:
      break;
  }
  return SlotOrder::priority;
}

}  // namespace

GateShape gate_shape(const RankView& view, const Operation& gate) {
  const Experts& experts = *view.plan().model.experts;
  const ExpertRowRanges& all = view.expert_row_ranges();
  return {.experts = experts.count,
          .top_k = experts.top_k,
          .capacity = all.capacity(gate),
          .order = slot_order(experts.gate_order),
          .renormalise = experts.renormalise && experts.top_k > 1,
          .capacity_of_calls = view.plan().layout.has_slices() ? all.capacity_of_micro_batch() : 0};
}

CapacityBlocks blocks_of(const RankView& view, const Operation& op, const Matrix& rows) {
  const ExpertRowRanges& all = view.expert_row_ranges();
  const std::int64_t local = all.experts() / all.ranks(), capacity = all.capacity(op);
  if (rows.rows % (local * capacity) != 0) {
    fail("'{}': {} rows are no blocks of {}", describe(op), rows.rows, capacity);
  }
  return {rows.rows / (local * capacity), local, capacity};
}

SlotUse SlotUse::of_capacity(std::int64_t blocks, ElementRange rows) {
  SlotUse use;
  use.ranges_.assign(blocks, rows);
  return use;
}

SlotUse SlotUse::of_tables(std::vector<ExpertTable*> tables, std::int64_t blocks) {
  SlotUse use;
  use.tables_ = std::move(tables);
  use.ranges_.resize(blocks);
  use.is_data_ = true;
  return use;
}

std::span<const ElementRange> SlotUse::ranges() {
  if (!is_data_) return ranges_;
  std::ranges::fill(ranges_, ElementRange{});
  for (const ExpertTable* table : tables_) {
    for (std::size_t block = 0; block < ranges_.size(); ++block) {
      ranges_[block] = joined(ranges_[block], table->incoming[block]);
    }
  }
  return ranges_;
}

namespace {

// What holds the slots that an operation of experts works on, or that an all-to-all carries.
ValueId slots_read_by(const Operation& op) {
  if (op.is_transfer()) return read_of(op, Operand::payload);
  return read_of(op, op.phase == Phase::input_grad ? Operand::output_grad : Operand::input);
}

}  // namespace

SlotUse slot_use(const RankView& view, const Operation& op, MicroBatch micro_batch, const Origin& part) {
  ExpertRowRanges& all = view.expert_row_ranges();
  if (!is_whole(part) && part.axis == kCapacityAxis) {
    const std::int64_t rows = view.original().value(slots_read_by(op)).shape.front();
    return SlotUse::of_capacity(rows / all.capacity(op), part_range(all.capacity(op), part));
  }
  if (all.has_tables(op, micro_batch)) return SlotUse::of_tables(all.of(op, micro_batch, part), all.experts());
  if (!is_whole(part)) {
    fail("'{}' is cut by tokens, but not the way to the experts: weft run cannot carry it out", describe(op));
  }
  return {};
}

}  // namespace weft
