// Unfolding takes the explicit waits of a plan (Plan::waits) by the operation that waits, in issue order.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "plan/unfold.hpp"

namespace weft {

// Throws Error where a wait names an operation that is not there, two that are of different classes, or reaches
// further back than Wait allows.
void check_waits(const Plan& plan);

class WaitsInIssueOrder {
 public:
  // `instances` are those of all classes, in issue order.
  WaitsInIssueOrder(const Plan& plan, const Instances& instances);

  struct For {
    OpId until;
    MicroBatch micro_batch = kOncePerStep;
    std::int8_t distance = 0;  // iterations back
  };
  // Returns what `instance` is told to wait for. Callers ask for every instance, in issue order.
  const std::vector<For>& next(const Instance& instance);

 private:
  struct Execution {
    MicroBatch micro_batch = kOncePerStep;
    std::int8_t distance = 0;
  };
  IdVector<OpId, std::vector<Wait>> waits_;  // empty where the plan has none
  IdVector<OpId, Execution> previous_;       // the last execution so far
  std::vector<For> found_;
};

}  // namespace weft
