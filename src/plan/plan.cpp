#include "plan/plan.hpp"

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
