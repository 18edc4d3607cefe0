// Says what the memory of a placed plan is for, and when most of it is in use.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

struct MemoryTerm {
  std::string name;  // "weights", "gradients", "optimizer state", "activations", "scratch"
  Bytes bytes;
};

// The peak is at the operation, in issue order, at which most bytes hold something: what a step has once, and what
// micro-batches made, from the issue of its first writer to that of its last reader.
struct MemoryPeak {
  std::string block;  // its block: "backward 0"
  MicroBatch micro_batch = kOncePerStep;
  std::int64_t in_flight = 0;  // forwards whose backward has not ended, over all model chunks
  Bytes live;                  // at most what the placement needs
};

struct MemoryUse {
  std::vector<MemoryTerm> terms;  // largest first; their sum is the class's memory
  MemoryPeak peak;                // the first, where several are equal
};

std::vector<MemoryUse> memory_use(const Plan& plan);  // by class

}  // namespace weft
