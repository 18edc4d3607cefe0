// Overlap of encoded gradients that ZeRO 2 and 3 exchange in every micro-batch (qgZ).
#pragma once

#include "plan/plan.hpp"

namespace weft {

// Lets exchanges run beside compute. What adds a unit's summands up waits in the order of compute until the next unit's
// gradients are encoded, and what follows a second hop for one unit more, so that compute goes on while they travel.
// The last units' sums end the block. A unit is a layer; the embedding; the head. Takes a plan whose blocks are in
// order and in which transfers block; to be called before place_values.
void overlap_exchanges(Plan& plan);

}  // namespace weft
