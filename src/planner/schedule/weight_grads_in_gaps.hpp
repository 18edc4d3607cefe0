// Where backward is split, weight gradients hide the traffic of layers. A whole backward computes them while its input
// gradients wait for tensor or expert parallelism; a pass of input gradients, or a forward, that stands alone leaves
// these gaps empty. Here sections of the weight gradients' passes go into them: those of earlier passes, and of the
// pass itself as far as it has come.
#pragma once

#include <cstdint>

#include "cost/cost_model.hpp"
#include "graph/pipeline_run.hpp"
#include "plan/plan.hpp"

namespace weft {

// Which weight gradients go into gaps.
enum class GapRule : std::uint8_t {
  none,
  early,         // those of passes that have ended, or of the pass itself, as far as it has come
  spare_at_end,  // likewise; but behind the last forward, where they keep a stage busy that waits for others, only
                 // those that are little longer than the gap
  held_back      // as `early`; and some wait behind their turn, until the next passes have gaps
};

// Takes a plan with blocks and an order in which no block has sections yet; changes it where backward is split.
// Forwards and input gradients keep their order and that within each of them, and so do weight gradients: they only
// move between them. ZeRO 0 and 1 only, sequences that pass whole.
void fill_gaps_with_weight_grads(Plan& plan, const CostModel& cost, GapRule rule);

}  // namespace weft
