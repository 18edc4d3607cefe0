// Finds when operations that run beside the chain of compute and blocking transfers surely start and have surely ended.
// Times are positions in their block.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "graph/op_lists.hpp"
#include "plan/plan.hpp"

namespace weft {

class BesideChain {
 public:
  static constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

  explicit BesideChain(const Plan& plan);

  bool runs_beside(OpId id) const;
  struct Spot {
    BlockId block;
    std::int32_t position = 0;
  };
  const Spot& spot(OpId id) const { return spots_[id]; }
  std::int32_t length_of_block(OpId id) const;

  // Returns the last position of the chain, in the same execution of the block, whose end it waits for, or -1.
  std::int32_t starts_after(OpId id) const { return starts_after_[id]; }
  // Returns the first position of the chain that waits for its end, counted on into the block's next execution, or
  // kNever.
  std::int32_t ended_at(OpId id) const { return ended_at_[id]; }

 private:
  void look_at(const ClassPlan& c, const IssueBlock& block, const OpLists& writers, const OpLists& readers);
  void note(const Wait& wait);
  bool same_block(OpId a, OpId b) const { return spot(a).block == spot(b).block && spot(a).block.valid(); }
  bool same_pass(OpId writer, OpId reader) const;  // of the same block, as no late reader is

  const Plan& plan_;
  IdVector<OpId, Spot> spots_;
  IdVector<OpId, std::int32_t> starts_after_, ended_at_;
};

}  // namespace weft
