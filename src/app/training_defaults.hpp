// What flags leave open, by who carries a plan out.
#pragma once

#include "cluster/cluster.hpp"
#include "graph/operation.hpp"

namespace weft {

// What training takes where flags are silent.
struct TrainingDefaults {
  ElementType precision;
  bool dropout;  // of a model with learned positions
  bool reserve;  // the device keeps memory for itself
};

inline TrainingDefaults defaults_of(Runtime runtime) {
  if (runtime == Runtime::cpu) return {ElementType::fp32, false, false};
  if (runtime == Runtime::cuda) return {ElementType::bf16, false, true};
  return {ElementType::bf16, true, true};
}

}  // namespace weft
