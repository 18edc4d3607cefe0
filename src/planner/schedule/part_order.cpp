#include "planner/schedule/part_order.hpp"

#include <algorithm>
#include <map>

#include "graph/operation_part.hpp"

namespace weft {
namespace {

class BlockParts {
 public:
  BlockParts(const Plan& plan, std::vector<OpId>& operations) : plan_(plan), operations_(operations) {}

  void take_turns() {
    std::vector<OpId> result;
    for (const OpId id : operations_) {
      const Operation& op = plan_.graph.op(id);
      const bool waits = op.is_transfer() && !plan_.issues[id.index()].blocking;
      if (!run_.empty() && op.phase == Phase::weight_grad) {
        behind_.push_back(id);
        continue;
      }
      const bool part = is_part(op) && op.per_micro_batch && !waits;
      if (!part || (!run_.empty() && parts_of(run_.front()) != parts_of(id))) end_run(result);
      if (part) {
        run_.push_back(id);
      } else {
        result.push_back(id);
      }
    }
    end_run(result);
    operations_ = std::move(result);
  }

 private:
  std::int64_t parts_of(OpId id) const { return plan_.graph.op(id).origins.front().of; }

  void end_run(std::vector<OpId>& result) {
    std::stable_sort(run_.begin(), run_.end(), [&](OpId a, OpId b) {
      return plan_.graph.op(a).origins.front().begin < plan_.graph.op(b).origins.front().begin;
    });
    result.insert(result.end(), run_.begin(), run_.end());
    result.insert(result.end(), behind_.begin(), behind_.end());
    run_.clear();
    behind_.clear();
  }

  const Plan& plan_;
  std::vector<OpId>& operations_;
  std::vector<OpId> run_, behind_;
};

}  // namespace

void order_parts_in_turn(Plan& plan) {
  for (ClassPlan& c : plan.classes) {
    for (IssueBlock& block : c.blocks) BlockParts(plan, block.operations).take_turns();
  }
}

void move_weight_grads(Plan& plan, const std::vector<OpId>& hides) {
  for (ClassPlan& c : plan.classes) {
    for (IssueBlock& block : c.blocks) {
      std::map<OpId, std::vector<OpId>> moved;  // by all-to-all of the model
      std::vector<OpId> rest;
      for (const OpId id : block.operations) {
        const Operation& op = plan.graph.op(id);
        const bool gradient = op.phase == Phase::weight_grad && op.per_micro_batch && op.origins.size() == 1;
        const OpId hidden = gradient ? hides[op.origins.front().operation.index()] : OpId{};
        (hidden.valid() ? moved[hidden] : rest).push_back(id);
      }
      if (moved.empty()) continue;
      std::vector<OpId> result;
      for (const OpId id : rest) {
        result.push_back(id);
        const Operation& op = plan.graph.op(id);
        if (op.origins.size() != 1) continue;
        const Origin& origin = op.origins.front();
        const auto found = moved.find(origin.operation);
        if (found == moved.end() || origin.end != origin.of) continue;
        result.insert(result.end(), found->second.begin(), found->second.end());
        moved.erase(found);
      }
      for (const auto& [exchange, gradients] : moved) result.insert(result.end(), gradients.begin(), gradients.end());
      block.operations = std::move(result);
    }
  }
}

}  // namespace weft
