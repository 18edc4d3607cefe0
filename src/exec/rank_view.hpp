// A plan as one rank sees it: its class, its groups, its memory.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/element_range.hpp"
#include "exec/expert_row_ranges.hpp"
#include "exec/rank_memory.hpp"
#include "exec/train_settings.hpp"
#include "graph/held_tensor.hpp"
#include "graph/rank_classes.hpp"
#include "kernels/matrix.hpp"
#include "plan/whole_plan.hpp"

namespace weft {

class RankView {
 public:
  // Both must outlive it. `device`: the one that the rank computes on; null: this processor.
  RankView(const WholePlan& whole, Rank rank, Accelerator* device = nullptr);

  const WholePlan& whole() const { return whole_; }
  const Plan& plan() const { return whole_.plan(); }
  const Unfolded& unfolded() const { return whole_.unfolded(); }
  const StepGraph& original() const { return whole_.original(); }
  Rank rank() const { return rank_; }
  ClassId rank_class() const { return class_; }
  std::int64_t coordinate(Axis axis) const;                        // in the mesh of tp, cp, dp, pp
  std::int64_t data_rank() const { return coordinate(Axis::dp); }  // which share of the global batch it trains on
  TensorHolder holder() const;
  const RankMemory& memory() const { return *memory_; }
  // What gates find, beside the plan's values: part of the rank's memory.
  ExpertRowRanges& expert_row_ranges() const { return *expert_row_ranges_; }
  // The positions of a sequence that this rank holds the tokens of, slice after slice, ascending in each of them: all
  // without context parallelism.
  std::vector<ElementRange> all_positions() const;

  const std::vector<std::int64_t>& members(GroupKind kind) const;
  // Of a transfer: those of its scope.
  std::vector<std::int64_t> members(const Communication& communication) const;
  // Members of an inner group of one that has levels.
  std::int64_t inner_size(GroupKind kind) const;
  LevelSizes level_sizes(const Communication& communication) const;
  std::int64_t group_size(GroupKind kind) const { return static_cast<std::int64_t>(members(kind).size()); }
  std::int64_t position_in(GroupKind kind) const;  // among the members

  // Where a value lies for a micro-batch (any for one that a step has once). Values that are a shard of one in whose
  // memory they lie begin where the whole does: shard_of() says where this rank's part is.
  ElementPointer data(ValueId value, MicroBatch micro_batch = kOncePerStep) const;
  // Of the step's micro-batches, the one whose tokens an operation works on. In a plan with layer groups `micro_batch`
  // numbers the groups.
  MicroBatch micro_batch_of_step(const Operation& operation, MicroBatch micro_batch) const;
  // Returns the positions of a sequence that an operation works on: those of its slice, or all that the rank holds.
  std::vector<ElementRange> positions_held(const Operation& operation) const;
  // Whether this execution of an operation is the first of its step to write `value`: sums over micro-batches (and over
  // the two uses of a tied embedding) begin with it. True of values that are no sums.
  bool writes_first(ValueId value, OpId operation, MicroBatch micro_batch) const;

  // The elements of a parameter of `elements` that member `position` of its group holds under ZeRO.
  ElementRange shard(std::int64_t elements, GroupKind kind, std::int64_t position) const;
  ElementRange own_shard(std::int64_t elements, GroupKind kind) const {
    return shard(elements, kind, position_in(kind));
  }

 private:
  const WholePlan& whole_;
  Rank rank_;
  ClassId class_;
  std::vector<ElementRange> positions_of_slice(std::int64_t index) const;

  std::vector<ElementRange> context_parts_;  // of whole sequences
  std::map<GroupKind, std::vector<std::int64_t>> groups_;
  std::unique_ptr<RankMemory> memory_;
  std::unique_ptr<ExpertRowRanges> expert_row_ranges_;
};

}  // namespace weft
