// Micro-batches in layer order (breadth-first accumulation; Lamy-Poirier, "Breadth-First Pipeline Parallelism", 2023):
// all micro-batches of a group pass a few layers before the first of them goes on. Gradients of the last layers are
// then complete early and travel under the rest of backward, and parameters of the last layers may arrive under
// forward. It holds the activations of the whole group.
#pragma once

#include <cstdint>

#include "plan/plan.hpp"

namespace weft {

struct LayerOrder {
  std::int32_t layers = 0;  // that a micro-batch passes in its turn; 0: all of them, micro-batch after micro-batch
  std::int32_t micro_batches = 0;  // of a group; 0: all of a step
  // Micro-batches that pass these layers abreast: one computes while the traffic of the others' layers is under way.
  std::int32_t abreast = 1;
  friend bool operator==(const LayerOrder&, const LayerOrder&) = default;
};

// Returns whether plans of this layout may have it: a rank holds the whole model, several micro-batches pass it, and
// ZeRO does not gather or reduce in every one of them.
bool allows_layer_order(const Layout& layout);

// Takes a plan whose blocks are complete and in the pipeline's order, and which says what runs beside compute. The last
// layers and the head go forward and at once backward with every micro-batch, so that what the head leaves is there
// once.
void order_by_layers(Plan& plan, const LayerOrder& choice);

}  // namespace weft
