#include "plan/waits.hpp"

#include "base/error.hpp"

namespace weft {

void check_waits(const Plan& plan) {
  for (std::size_t i = 0; i < plan.waits.size(); ++i) {
    const Wait& wait = plan.waits[i];
    for (const OpId id : {wait.operation, wait.until}) {
      if (plan.graph.operations.contains(id)) continue;
      fail("wait {} names operation {}, which is not in 0..{}", i, id.value,
           static_cast<std::int64_t>(plan.graph.operations.size()) - 1);
    }
    if (wait.executions < 0 || wait.executions > 1) {
      fail("wait {} reaches {} executions back; 0 and 1 are allowed", i, wait.executions);
    }
    const Operation &op = plan.graph.op(wait.operation), &until = plan.graph.op(wait.until);
    const auto& classes = plan.graph.classes;
    if (op.rank_class != until.rank_class) {
      fail("wait {}: '{}' of {} cannot wait for '{}' of {}; waits are within a rank class", i, describe(op),
           classes[op.rank_class].name, describe(until), classes[until.rank_class].name);
    }
    if (!op.per_micro_batch && until.per_micro_batch && wait.executions != 0) {
      fail(
          "wait {}: '{}', which runs once a step, waits for the last '{}' of its own step; {} executions back is not "
          "allowed",
          i, describe(op), describe(until), wait.executions);
    }
  }
}

WaitsInIssueOrder::WaitsInIssueOrder(const Plan& plan, const Instances& instances) {
  if (plan.waits.empty()) return;
  waits_.resize(plan.graph.operations.size());
  for (const Wait& wait : plan.waits) waits_[wait.operation].push_back(wait);
  previous_.resize(waits_.size());
  for (const Instance& instance : instances) previous_[instance.operation] = {instance.micro_batch, 1};
}

const std::vector<WaitsInIssueOrder::For>& WaitsInIssueOrder::next(const Instance& instance) {
  found_.clear();
  if (waits_.empty()) return found_;
  const OpId id = instance.operation;
  for (const Wait& wait : waits_[id]) {
    if (instance.micro_batch.valid() && !previous_[wait.until].micro_batch.valid()) {
      found_.push_back({wait.until, kOncePerStep, static_cast<std::int8_t>(wait.executions)});
    } else if (!instance.micro_batch.valid() && previous_[wait.until].micro_batch.valid()) {
      found_.push_back({wait.until, previous_[wait.until].micro_batch, 0});
    } else if (wait.executions == 0) {
      found_.push_back({wait.until, instance.micro_batch, 0});
    } else {
      found_.push_back({wait.until, previous_[id].micro_batch, previous_[id].distance});
    }
  }
  previous_[id] = {instance.micro_batch, 0};
  return found_;
}

}  // namespace weft
