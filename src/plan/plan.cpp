#include "plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace weft {
namespace {

BlockId find_block(const ClassPlan& plan, BlockKind kind) {
  const auto found =
      std::find_if(plan.blocks.begin(), plan.blocks.end(), [&](const IssueBlock& block) { return block.kind == kind; });
  WEFT_CHECK(found != plan.blocks.end());
  return make_id<BlockId>(found - plan.blocks.begin());
}

}  // namespace

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

std::string name_of(const IssueBlock& block) {
  std::string name(name_of(block.kind));
  if (block.chunk >= 0) name += fmt::format(" {}", block.chunk);
  if (block.slice >= 0) name += fmt::format(" slice {}", block.slice);
  return name;
}

const IssueBlock& block_of(const ClassPlan& plan, BlockKind kind) {
  return plan.blocks[find_block(plan, kind)];
}

IssueBlock& block_of(ClassPlan& plan, BlockKind kind) {
  return plan.blocks[find_block(plan, kind)];
}

const IssueBlock& block_of(const ClassPlan& plan, const IssueSlot& slot) {
  return plan.blocks[slot.block];
}

std::span<const OpId> operations_of(const ClassPlan& plan, const IssueSlot& slot) {
  const std::span<const OpId> all = block_of(plan, slot).operations;
  const std::size_t begin = slot.begin;
  return all.subspan(begin, (slot.end < 0 ? all.size() : static_cast<std::size_t>(slot.end)) - begin);
}

bool ends_block(const ClassPlan& plan, const IssueSlot& slot) {
  return slot.end < 0 || std::cmp_equal(slot.end, block_of(plan, slot).operations.size());
}

bool has_sections(const ClassPlan& plan) {
  return std::any_of(plan.order.begin(), plan.order.end(),
                     [&](const IssueSlot& slot) { return slot.begin > 0 || !ends_block(plan, slot); });
}

IdVector<BlockId, std::vector<std::int32_t>> pauses_of(const ClassPlan& plan) {
  IdVector<BlockId, std::vector<std::int32_t>> pauses(plan.blocks.size());
  IdVector<BlockId, const IssueSlot*> last(plan.blocks.size(), nullptr);
  for (const IssueSlot& slot : plan.order) {
    const IssueSlot* const before = std::exchange(last[slot.block], &slot);
    if (before == nullptr || before->micro_batch == slot.micro_batch || ends_block(plan, *before)) continue;
    pauses[slot.block].push_back(before->end);
  }
  for (std::vector<std::int32_t>& of_block : pauses) {
    std::ranges::sort(of_block);
    const auto repeated = std::ranges::unique(of_block);
    of_block.erase(repeated.begin(), repeated.end());
  }
  return pauses;
}

bool has_pauses(const ClassPlan& plan) {
  return std::ranges::any_of(pauses_of(plan), [](const auto& of_block) { return !of_block.empty(); });
}

Bytes address(const Plan& plan, ValueId value, MicroBatch micro_batch) {
  const Placement& place = plan.placements[value];
  const Value& placed = plan.graph.value(value);
  if (!placed.per_micro_batch) return place.offset;
  if (place.frame >= 0) {
    return plan.classes[placed.rank_class].frames[place.frame].base[micro_batch.index()] + place.offset;
  }
  return place.offset + aligned(placed.bytes()) * (micro_batch.value % place.copies);
}

}  // namespace weft
