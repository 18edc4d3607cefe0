#include "plan/woven_passes.hpp"

#include <algorithm>
#include <vector>

namespace weft {

bool has_woven_passes(const ClassPlan& plan) {
  const IssueSlot* open = nullptr;  // a section whose rest must come next
  for (const IssueSlot& slot : plan.order) {
    if (!slot.micro_batch.valid()) continue;
    const bool continues = open != nullptr && open->block == slot.block && open->micro_batch == slot.micro_batch;
    if (open != nullptr ? !continues : slot.begin > 0) return true;
    open = ends_block(plan, slot) ? nullptr : &slot;
  }
  return false;
}

WovenKinds woven_kinds(const ClassPlan& plan) {
  WovenKinds woven{};
  std::vector<IssueSlot> open;  // the last section of each pass that has begun and not ended
  for (const IssueSlot& slot : plan.order) {
    if (!slot.micro_batch.valid()) continue;
    std::erase_if(open, [&](const IssueSlot& other) {
      return other.block == slot.block && other.micro_batch == slot.micro_batch;
    });
    const BlockKind kind = block_of(plan, slot).kind;
    for (const IssueSlot& other : open) {
      const BlockKind other_kind = block_of(plan, other).kind;
      woven[kind][other_kind] = woven[other_kind][kind] = true;
    }
    if (!ends_block(plan, slot)) open.push_back(slot);
  }
  return woven;
}

}  // namespace weft
