#include "plan/woven_passes.hpp"

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

}  // namespace weft
