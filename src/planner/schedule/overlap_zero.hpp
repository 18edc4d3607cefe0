// Overlap of what ZeRO-2 and 3 move in every micro-batch: parameters gathered ahead of their layer, gradients reduced
// behind theirs. Waits bound how far ahead and behind, and with it the memory.
//
// A unit is what is gathered or reduced together: a layer; the embedding; the head.
#pragma once

#include "plan/plan.hpp"

namespace weft {

struct ShardedOverlap {
  bool gathers = false;
  bool reductions = false;
  // Units gathered beside the one in use. The gather of a unit waits for the last reader of the one `prefetch` + 1
  // units before it; the first unit of a block is waited for on the spot, the next `prefetch` follow it at once. Where
  // forward leaves the head whole, it is the first unit of backward, and nothing is waited for.
  int prefetch = 1;
  // Whether the gathers that follow the first of a block at once wait for nothing but their queue, so that they may run
  // under the end of the pass before. They then have memory of their own. Without a pipeline.
  bool ahead_of_pass = false;
  // Whole gradients of this many units are in memory per block, at least 1. Those of a unit wait for the reduction of
  // the unit that had their buffer before, in the same execution of the block or in the previous one.
  int gradient_buffers = 2;
};

// Takes a plan whose blocks are in order and in which transfers block; to be called before place_values. Gathers go to
// queues of their own, so that an urgent gather never stands behind a reduction. Nothing changes where nothing is
// sharded (ZeRO 0 and 1) but that once-a-step gathers (ZeRO 1 and 2) no longer block where `gathers`.
void overlap_sharded_traffic(Plan& plan, const ShardedOverlap& overlap);

}  // namespace weft
