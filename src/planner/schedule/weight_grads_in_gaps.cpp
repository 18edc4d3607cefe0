#include "planner/schedule/weight_grads_in_gaps.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plan/plan.hpp"
#include "planner/schedule/pass_clock.hpp"

namespace weft {
namespace {

// A weight gradient that takes longer than the gap delays its pass, which is worth it where the gap is so much of it.
// At the end of a step other stages wait for that pass.
constexpr double kLeastShareInGap = 0.05, kLeastShareAtEnd = 0.5;

// A pass of weight gradients, as far as it has been issued.
struct WeightGrads {
  IssueSlot slot;
  BlockId input_grad;
  std::int32_t next = 0, length = 0;
};

// A pass as it goes on, or a pair of a forward and an input gradient.
struct Pass {
  Pass(const PassSteps& steps, std::size_t blocks) : now(steps), ended(blocks) {}

  PassClock now;
  IdVector<BlockId, std::vector<double>> ended;  // when the operations so far have ended
  int open = 0;                                  // blocks that have begun and not ended
  IssueSlot input_grad = {.block = {}};
};

class GapFiller {
 public:
  GapFiller(const Plan& plan, const CostModel& cost, const OpLists& writers, ClassId rank_class, GapRule rule)
      : class_(plan.classes[rank_class]), rule_(rule), steps_(plan, cost, writers, rank_class) {
    for (const BlockId b : class_.blocks.ids()) idle_.push_back(idle_time(b));
    for (std::size_t i = 0; i < class_.order.size(); ++i) {
      const IssueSlot& slot = class_.order[i];
      if (kind(slot) == BlockKind::weight_grad) queue_.push_back(all_of(slot));
      if (kind(slot) == BlockKind::forward) end_of_forwards_ = i + 1;
    }
  }

  std::vector<IssueSlot> order() {
    for (std::size_t i = 0; i < class_.order.size(); ++i) {
      const IssueSlot& slot = class_.order[i];
      if (i == end_of_forwards_) least_share_ = rule_ == GapRule::spare_at_end ? kLeastShareAtEnd : kLeastShareInGap;
      if (kind(slot) == BlockKind::weight_grad) {
        ++due_;
        issue_due(rule_ == GapRule::held_back ? gaps_behind(i) : 0);
      } else if (is_filled(slot)) {
        issue_with_weight_grads(slot);
      } else {
        order_.push_back(slot);
      }
    }
    for (IssueSlot& slot : order_) {
      if (slot.begin == 0 && std::cmp_equal(slot.end, steps_.of(slot.block).size())) slot.end = -1;
    }
    return std::move(order_);
  }

 private:
  BlockKind kind(const IssueSlot& slot) const { return class_.blocks[slot.block].kind; }
  WeightGrads all_of(const IssueSlot& slot) const {
    return {slot, steps_.input_grad_of(slot.block), 0, static_cast<std::int32_t>(steps_.of(slot.block).size())};
  }

  bool is_filled(const IssueSlot& slot) const {
    return kind(slot) == BlockKind::forward || kind(slot) == BlockKind::input_grad;
  }

  // How long compute waits for transfers in a block that stands alone.
  double idle_time(BlockId block) const {
    PassClock now(steps_);
    std::vector<double> ended;
    double busy = 0;
    for (const PassStep& step : steps_.of(block)) {
      ended.push_back(now.end(step, last_end(ended, step.behind)));
      if (step.queue == 0) busy += step.ns;
    }
    return now.compute - busy;
  }

  void push(const IssueSlot& slot, std::int32_t position) {
    IssueSlot* const last = order_.empty() ? nullptr : &order_.back();
    const bool goes_on =
        last != nullptr && last->block == slot.block && last->micro_batch == slot.micro_batch && last->end == position;
    if (goes_on) {
      ++last->end;
    } else {
      order_.push_back({slot.block, slot.micro_batch, position, position + 1});
    }
  }

  // The sections of a pair are one pass for this purpose.
  void issue_with_weight_grads(const IssueSlot& slot) {
    Pass& pass = pass_of(slot);
    const std::int32_t end = slot.begin + static_cast<std::int32_t>(operations_of(class_, slot).size());
    for (std::int32_t at = slot.begin; at < end; ++at) {
      const PassStep& step = steps_.of(slot.block)[static_cast<std::size_t>(at)];
      std::vector<double>& ended = pass.ended[slot.block];
      const double ready = last_end(ended, step.behind);
      if (step.queue == 0) fill(pass, ready);
      push(slot, at);
      ended.push_back(pass.now.end(step, ready));
    }
    if (ends_block(class_, slot)) --pass.open;
  }

  // Returns the pass under way, or a new one.
  Pass& pass_of(const IssueSlot& slot) {
    if (!pass_ || pass_->open == 0) {
      pass_.emplace(steps_, class_.blocks.size());
      filled_.clear();
    }
    if (slot.begin == 0) {
      ++pass_->open;
      if (kind(slot) == BlockKind::input_grad) {
        begun_.emplace(slot.block, slot.micro_batch);
        pass_->input_grad = slot;
      }
    }
    return *pass_;
  }

  // Issues weight gradients while compute waits until `until`.
  void fill(Pass& pass, double until) {
    while (pass.now.compute < until && first_ < queue_.size()) {
      WeightGrads& own = queue_[first_];
      if (!has_begun(own) || !fill_with(own, pass, until)) return;
      if (own.next < own.length) continue;
      ++first_;
      filled_.clear();
    }
  }

  // Issues the next operation where it is ready and, if it computes, the gap is long enough. What brings the inputs of
  // weight gradients only takes a turn behind the transfers of the pass. Returns whether it did.
  bool fill_with(WeightGrads& own, Pass& pass, double until) {
    const PassStep& step = steps_.of(own.slot.block)[static_cast<std::size_t>(own.next)];
    if (!step.may_move) return false;
    filled_.resize(static_cast<std::size_t>(own.length), 0);
    double ready = last_end(filled_, step.behind);
    if (own.input_grad == pass.input_grad.block && own.slot.micro_batch == pass.input_grad.micro_batch) {
      const std::vector<double>& ended = pass.ended[own.input_grad];
      const auto is_behind = [&](std::int32_t position) { return std::cmp_greater_equal(position, ended.size()); };
      if (std::any_of(step.behind_input_grad.begin(), step.behind_input_grad.end(), is_behind)) return false;
      ready = std::max(ready, last_end(ended, step.behind_input_grad));
    }
    if (step.queue == 0) {
      const double start = pass.now.start(step, ready);
      if (start >= until || until - start < least_share_ * step.ns) return false;
    }
    filled_[static_cast<std::size_t>(own.next)] = pass.now.end(step, ready);
    push(own.slot, own.next++);
    return true;
  }

  bool has_begun(const WeightGrads& own) const { return begun_.contains({own.input_grad, own.slot.micro_batch}); }

  // Issues the passes whose turn has come, but for as much of their end as fits into `room`.
  void issue_due(double room) {
    double left = 0;
    for (std::size_t i = first_; i < due_; ++i) left += time_left(queue_[i]);
    for (; first_ < due_; ++first_) {
      WeightGrads& own = queue_[first_];
      for (; own.next < own.length; ++own.next) {
        if (room > 0 && left <= room) return;
        push(own.slot, own.next);
        const PassStep& step = steps_.of(own.slot.block)[static_cast<std::size_t>(own.next)];
        if (step.queue == 0) left -= step.ns;
      }
    }
  }
  double time_left(const WeightGrads& own) const {
    double ns = 0;
    for (std::int32_t at = own.next; at < own.length; ++at) {
      const PassStep& step = steps_.of(own.slot.block)[static_cast<std::size_t>(at)];
      if (step.queue == 0) ns += step.ns;
    }
    return ns;
  }

  // How long the passes between this place in the order and the next weight gradients wait for transfers.
  double gaps_behind(std::size_t place) const {
    double ns = 0;
    for (std::size_t i = place + 1; i < class_.order.size(); ++i) {
      const IssueSlot& slot = class_.order[i];
      if (!is_filled(slot)) break;
      if (slot.begin == 0 && ends_block(class_, slot)) ns += idle_[slot.block];
    }
    return ns;
  }

  const ClassPlan& class_;
  GapRule rule_;
  PassSteps steps_;
  IdVector<BlockId, double> idle_;
  std::vector<WeightGrads> queue_;   // passes in their order
  std::size_t end_of_forwards_ = 0;  // in the order
  double least_share_ = kLeastShareInGap;
  std::size_t first_ = 0, due_ = 0;                 // the first that is not all issued; how many have had their turn
  std::set<std::pair<BlockId, MicroBatch>> begun_;  // input gradients
  std::optional<Pass> pass_;                        // under way
  std::vector<double> filled_;  // when those of the first pass that fill the pass under way have ended
  std::vector<IssueSlot> order_;
};

bool may_fill(const Plan& plan, const ClassPlan& class_plan) {
  const bool is_split = std::any_of(class_plan.blocks.begin(), class_plan.blocks.end(),
                                    [](const IssueBlock& block) { return block.kind == BlockKind::weight_grad; });
  return is_split && plan.layout.zero < 3 && plan.layout.reduces_once_a_step() && !plan.layout.has_slices();
}

// A transfer that brings the input of weight gradients, and the last operation that uses it: positions in the block.
struct Input {
  std::size_t transfer, last_user;
};

std::vector<Input> inputs_of(const Plan& plan, const IssueBlock& block) {
  std::vector<Input> inputs;
  for (std::size_t at = 0; at < block.operations.size(); ++at) {
    const Operation& op = plan.graph.op(block.operations[at]);
    if (!op.communication || op.communication->group != GroupKind::tp) continue;
    Input input{at, at};
    for (std::size_t other = at + 1; other < block.operations.size(); ++other) {
      const Operation& user = plan.graph.op(block.operations[other]);
      const auto brings = [&](const Read& read) { return writes_value(op, read.value); };
      if (!user.is_transfer() && std::ranges::any_of(user.reads, brings)) input.last_user = other;
    }
    inputs.push_back(input);
  }
  return inputs;
}

// What compute waits for on the spot cannot go into a gap; the head's gather is such a transfer, and weight gradients
// keep their order. An input comes while the one before it is used, and so takes the memory of the one before that. The
// first inputs of a pass, which may come before it, have memory of their own, which those of the pass before leave.
// Where slow links bring an input further ahead, it has memory of its own too: it does not wait for what stands behind
// it.
void let_inputs_come_beside(Plan& plan, const ClassPlan& class_plan) {
  constexpr std::size_t kBuffers = 2;
  for (const IssueBlock& block : class_plan.blocks) {
    if (block.kind != BlockKind::weight_grad) continue;
    const std::vector<Input> inputs = inputs_of(plan, block);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const OpId transfer = block.operations[inputs[i].transfer];
      plan.issues[transfer].blocking = false;
      const bool in_this_pass = i >= kBuffers;
      const std::size_t before = in_this_pass ? i - kBuffers : inputs.size() - std::min(inputs.size(), kBuffers - i);
      if (in_this_pass && inputs[before].last_user > inputs[i].transfer) continue;
      plan.waits.push_back({transfer, block.operations[inputs[before].last_user], in_this_pass ? 0 : 1});
    }
  }
}

}  // namespace

void fill_gaps_with_weight_grads(Plan& plan, const CostModel& cost, GapRule rule) {
  const OpLists writers = writers_by_value(plan.graph);
  for (const ClassId c : plan.classes.ids()) {
    ClassPlan& class_plan = plan.classes[c];
    if (!may_fill(plan, class_plan)) continue;
    let_inputs_come_beside(plan, class_plan);
    class_plan.order = GapFiller(plan, cost, writers, c, rule).order();
  }
}

}  // namespace weft
