#include "plan/plan.hpp"

#include <algorithm>
#include <utility>

namespace weft {

std::string_view name_of(QueueKind kind) {
  switch (kind) {
    case QueueKind::compute:
      return "compute";
    case QueueKind::extra:
      return "extra";
    case QueueKind::communication:
      return "communication";
  }
  return "?";
}

std::span<const OpId> operations_of(const ClassPlan& plan, const Slot& slot) {
  const std::span<const OpId> all = plan.blocks[static_cast<std::size_t>(slot.block)].operations;
  const auto begin = static_cast<std::size_t>(slot.begin);
  return all.subspan(begin, (slot.end < 0 ? all.size() : static_cast<std::size_t>(slot.end)) - begin);
}

bool ends_block(const ClassPlan& plan, const Slot& slot) {
  return slot.end < 0 || std::cmp_equal(slot.end, plan.blocks[static_cast<std::size_t>(slot.block)].operations.size());
}

bool has_pieces(const ClassPlan& plan) {
  return std::any_of(plan.order.begin(), plan.order.end(),
                     [&](const Slot& slot) { return slot.begin > 0 || !ends_block(plan, slot); });
}

Bytes address(const Plan& plan, ValueId value, std::int32_t micro_batch) {
  const Placement& place = plan.placements[value.index()];
  const Value& placed = plan.graph.value(value);
  if (!placed.per_micro_batch) return place.offset;
  const auto mb = static_cast<std::size_t>(micro_batch);
  if (place.frame >= 0) {
    const ClassPlan& rank_class = plan.classes[placed.rank_class.index()];
    return rank_class.frames[static_cast<std::size_t>(place.frame)].base[mb] + place.offset;
  }
  return place.offset + aligned(placed.bytes()) * (micro_batch % place.copies);
}

}  // namespace weft
