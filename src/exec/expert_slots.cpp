#include "exec/expert_slots.hpp"

#include "base/error.hpp"
#include "graph/operation_part.hpp"

namespace weft {
namespace {

constexpr std::int32_t kAlongCapacity = 1;  // Origin::axis

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

GateShape gate_shape(const RankView& view) {
  const Experts& experts = *view.plan().model.experts;
  return {.experts = experts.count,
          .top_k = experts.top_k,
          .capacity = view.expert_windows().shape().capacity,
          .order = slot_order(experts.gate_order),
          .renormalise = experts.renormalise && experts.top_k > 1};
}

ExpertBlocks blocks_of(const RankView& view, const Operation& op, const Matrix& rows) {
  const ExpertWindows::Shape& shape = view.expert_windows().shape();
  const std::int64_t local = shape.experts / shape.ranks;
  if (rows.rows % (local * shape.capacity) != 0) {
    fail("'{}': {} rows are no blocks of {}", describe(op), rows.rows, shape.capacity);
  }
  return {rows.rows / (local * shape.capacity), local, shape.capacity};
}

SlotUse slot_use(const RankView& view, const Operation& op, std::int32_t micro_batch, const Origin& part) {
  SlotUse use;
  if (op.role == Role::gate) return use;
  const bool is_cut = !is_whole(part);
  const ExpertWindows::Shape& shape = view.expert_windows().shape();
  const Layout& layout = view.plan().layout;
  // Ranks that gather each other's tokens before the products have blocks of all of them.
  const bool gathers = layout.etp > 1 && (layout.sequence_parallel || layout.tp == 1);
  if (is_cut && part.axis == kAlongCapacity) {
    const auto blocks = static_cast<std::size_t>(shape.experts * (gathers ? layout.etp : 1));
    use.fixed.assign(blocks, part_range(shape.capacity, part));
    return use;
  }
  if (!is_cut && view.expert_exchange() == ExpertExchange::padded) return use;
  if (gathers) {
    fail("'{}': weft run takes only the rows that are there where --etp ranks do not gather tokens (--etp {})",
         describe(op), layout.etp);
  }
  use.table = &view.expert_windows().of(op, micro_batch, part);
  return use;
}

}  // namespace weft
