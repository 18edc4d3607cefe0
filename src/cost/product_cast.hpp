// What it costs to round the operands of a product, as Transformer Engine does it beside its linear layers.
#pragma once

#include <cstdint>

#include "graph/step_graph.hpp"

namespace weft {

struct CastWork {
  double bytes = 0;          // moved in device memory
  std::int64_t kernels = 0;  // of their own
};
// Nothing where the operation is no product that rounds. Weights are rounded once a step, by the update.
CastWork cast_work(const Operation& operation);

}  // namespace weft
