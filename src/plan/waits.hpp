// Explicit waits of a plan (Plan::waits), as unfolding takes them: by the operation that waits, in issue order.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "plan/unfold.hpp"

namespace weft {

// Throws Error where a wait names an operation that is not there, two that are of different classes, or one that runs
// once a step and that one of every micro-batch would wait for.
void check_waits(const Plan& plan);

class WaitsInIssueOrder {
 public:
  // `instances`: of all classes, in issue order.
  WaitsInIssueOrder(const Plan& plan, const std::vector<Instance>& instances);

  struct For {
    OpId until;
    std::int32_t micro_batch = -1;
    std::int8_t distance = 0;  // iterations back
  };
  // What `instance` is told to wait for. To be asked for every instance, in issue order.
  const std::vector<For>& next(const Instance& instance);

 private:
  struct Execution {
    std::int32_t micro_batch = -1;
    std::int8_t distance = 0;
  };
  std::vector<std::vector<Wait>> waits_;  // by operation; empty where the plan has none
  std::vector<Execution> previous_;       // by operation: its last execution so far
  std::vector<For> found_;
};

}  // namespace weft
