// A lower bound on the memory of a layout, without building its graph. Searches drop most layouts by it.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "graph/layout.hpp"
#include "model/transformer.hpp"

namespace weft {

struct MemoryBound {
  std::int64_t stage = 0;  // the pipeline rank that needs most
  Bytes state;             // weights, gradients and optimizer state of its layers and ends, exact
  Bytes activations;       // what its layers keep from forward to backward, for every micro-batch in flight
  Bytes total() const { return state + activations; }
};

// No plan of this layout needs less on that stage: state is held all the time, and what backward reads of a layer is
// held for each micro-batch between its forward and its backward, when most of them are in flight in the pipeline
// schedule. Scratch, alignment and the activations of embedding and head are left out. The layout must be valid for the
// model.
MemoryBound memory_lower_bound(const Transformer& model, const Layout& layout);

}  // namespace weft
