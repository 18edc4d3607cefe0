// How many thread blocks of a GPU shall work on its library's collectives beside compute.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

// A transfer with some number of thread blocks.
struct TransferBeside {
  double alone = 0;  // seconds
  double compute_slowdown = 0, transfer_slowdown = 0;
  std::int32_t thread_blocks = 0;  // 0: the library's choice
};

// What a step takes at least whose transfers, of so many seconds alone, all run beside its compute: while both run each
// is slowed down, and what is left of the longer one goes on alone.
double hidden_step_seconds(double compute, double transfers, double compute_slowdown, double transfer_slowdown);

// How many all_reduces of `bytes` a rank of the class moves as much with in a step.
double transfers_of(const Plan& plan, ClassId rank_class, Bytes bytes);

// Returns which of them lets a step of so many seconds of compute and so many such transfers be shortest; the first
// unless another is clearly better.
std::size_t best_beside(const std::vector<TransferBeside>& candidates, double compute, double transfers);

}  // namespace weft
