// How long the passes of a pipeline take where transfers run beside compute: one pass at a time, its operations as long
// as they take alone, compute in its order and every queue and link in theirs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/op_lists.hpp"
#include "plan/plan.hpp"

namespace weft {

// An operation of a block, with what it waits for in this block and, of weight gradients, in the input gradients that
// they are of.
struct PassStep {
  double ns = 0;
  std::int32_t queue = 0, link = -1;  // queue 0: compute, or compute waits for it
  bool may_move = true;               // to another pass: ranks of other classes issue it in no order of theirs
  std::vector<std::int32_t> behind, behind_input_grad;  // positions
};

// The blocks of a class.
class PassSteps {
 public:
  PassSteps(const Plan& plan, const CostModel& cost, const OpLists& writers, ClassId rank_class);

  const std::vector<PassStep>& of(BlockId block) const { return steps_[block]; }
  // Returns the block with the input gradients that weight gradients are of; not valid where there is none.
  BlockId input_grad_of(BlockId weight_grads) const;
  std::size_t queues() const { return class_.queues.size(); }
  std::size_t links() const { return links_; }

 private:
  struct Spot {
    BlockId block;
    std::int32_t position = 0;
  };
  PassStep step_of(const Plan& plan, const CostModel& cost, const OpLists& writers, OpId id) const;
  void add_readers_of_weight(const Operation& op, BlockId input_grad, PassStep& step) const;

  const StepGraph& graph_;
  const ClassPlan& class_;
  std::size_t links_;
  IdVector<OpId, Spot> spots_;
  IdVector<BlockId, std::vector<PassStep>> steps_;
};

// When compute and each queue and link are free.
struct PassClock {
  explicit PassClock(const PassSteps& steps) : queues(steps.queues(), 0), links(steps.links(), 0) {}

  double start(const PassStep& step, double ready) const;
  double end(const PassStep& step, double ready);  // and it is then taken until that

  double compute = 0;
  std::vector<double> queues, links;
};

// Returns when the last of several steps has ended.
double last_end(const std::vector<double>& ended, std::span<const std::int32_t> of);

}  // namespace weft
