#include "exec/rank_view.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "graph/group_levels.hpp"
#include "graph/pipeline_run.hpp"

namespace weft {

RankView::RankView(const WholePlan& whole, Rank rank, Accelerator* device) : whole_(whole), rank_(rank) {
  const Plan& plan = whole.plan();
  const ModelGroups model = model_groups(plan.model, plan.layout);
  const RankClasses classes = find_rank_classes(Cluster(plan.cluster), plan.layout, model);
  class_ = {classes.class_of[rank.index()]};
  for (const GroupKind kind : group_kinds()) {
    std::vector<std::int64_t>& members = groups_[kind];
    for (const Rank member : group_members(plan.layout, model, kind, rank)) {
      members.push_back(member.value);
    }
  }
  context_parts_ = positions_of(Share::mirrored, plan.layout.seq, {coordinate(Axis::cp), plan.layout.cp});
  memory_ = std::make_unique<RankMemory>(plan.classes[class_].memory, device);
  expert_row_ranges_ = std::make_unique<ExpertRowRanges>(plan, class_);
}

std::int64_t RankView::coordinate(Axis axis) const {
  return dense_mesh(plan().layout).coordinate(axis, rank_);
}

TensorHolder RankView::holder() const {
  if (!plan().model.experts) return {.tp = coordinate(Axis::tp)};
  return {coordinate(Axis::tp), position_in(GroupKind::ep), position_in(GroupKind::etp)};
}

const std::vector<std::int64_t>& RankView::members(GroupKind kind) const {
  return groups_.at(kind);
}

std::vector<std::int64_t> RankView::members(const Communication& c) const {
  const std::vector<std::int64_t>& group = members(c.group);
  if (c.scope == Scope::whole) return group;
  std::vector<Rank> ranks;
  for (const std::int64_t member : group) ranks.push_back({static_cast<std::int32_t>(member)});
  std::vector<std::int64_t> found;
  for (const Rank member : scoped_members(ranks, level_sizes(c), rank_, c.scope)) found.push_back(member.value);
  return found;
}

std::int64_t RankView::inner_size(GroupKind kind) const {
  return plan().graph.classes[class_].group(kind).scoped(Scope::inner).view.size;
}

LevelSizes RankView::level_sizes(const Communication& c) const {
  return c.levels == kOwnLevels ? plan().graph.classes[class_].group(c.group).level_sizes() : c.levels;
}

std::int64_t RankView::position_in(GroupKind kind) const {
  const std::vector<std::int64_t>& ranks = members(kind);
  const auto found = std::find(ranks.begin(), ranks.end(), rank_.value);
  WEFT_CHECK(found != ranks.end());
  return found - ranks.begin();
}

ElementPointer RankView::data(ValueId value, MicroBatch micro_batch) const {
  const Value& placed = plan().graph.value(value);
  WEFT_CHECK(placed.rank_class == class_);
  return {memory_->data() + address(plan(), value, micro_batch.valid() ? micro_batch : MicroBatch{0}).value,
          placed.dtype};
}

MicroBatch RankView::micro_batch_of_step(const Operation& operation, MicroBatch micro_batch) const {
  if (plan().layout.directions() > 1) {
    const std::int64_t stage = plan().graph.classes[class_].stage;
    const bool other_way = shape_of(plan().layout).is_copy(stage, operation.chunk);
    return make_id<MicroBatch>(2 * micro_batch.value + (other_way ? 1 : 0));
  }
  if (operation.turn < 0 || plan().layout.has_slices()) return micro_batch;
  return make_id<MicroBatch>(micro_batch.value * plan().layout.group_size() + operation.turn);
}

std::vector<ElementRange> RankView::positions_held(const Operation& operation) const {
  return plan().layout.has_slices() ? positions_of_slice(operation.turn) : context_parts_;
}

std::vector<ElementRange> RankView::all_positions() const {
  if (!plan().layout.has_slices()) return context_parts_;
  std::vector<ElementRange> all;
  for (std::int64_t slice = 0; slice < plan().layout.slices(); ++slice) {
    const std::vector<ElementRange> held = positions_of_slice(slice);
    all.insert(all.end(), held.begin(), held.end());
  }
  return all;
}

// Context-parallel ranks share out every slice as they would share out a sequence.
std::vector<ElementRange> RankView::positions_of_slice(std::int64_t index) const {
  const Layout& layout = plan().layout;
  const ElementRange slice = layout.slice(index);
  std::vector<ElementRange> held = positions_of(Share::mirrored, slice.size(), {coordinate(Axis::cp), layout.cp});
  for (ElementRange& part : held) part = {slice.begin + part.begin, slice.begin + part.end};
  return held;
}

bool RankView::writes_first(ValueId value, OpId id, MicroBatch micro_batch) const {
  const StepGraph& graph = plan().graph;
  if (!graph.value(value).accumulated) return true;
  for (const Instance& instance : unfolded().instances()) {  // in issue order
    if (!writes_value(graph.op(instance.operation), value)) continue;
    if (graph.value(value).per_micro_batch && instance.micro_batch != micro_batch) continue;
    return instance.operation == id && instance.micro_batch == micro_batch;
  }
  return true;
}

ElementRange RankView::shard(std::int64_t elements, GroupKind kind, std::int64_t position) const {
  const std::int64_t n = group_size(kind);
  const std::int64_t length = (elements + n - 1) / n;
  return {std::min(elements, position * length), std::min(elements, (position + 1) * length)};
}

}  // namespace weft
