// Frames hold what passes of model chunks, or of slices of sequences, keep for later ones, in memory that they share:
// activations for backward, and where backward is split, what weight gradients read.
//
// With several model chunks on a rank, each has most forwards in flight at another time. Copies of its own for every
// chunk would add up the chunks' peaks; frames need the peak of the sum. So it is with slices. Where micro-batches
// pause between layers, so do the gradients that backward holds meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/memory/beside_chain.hpp"
#include "plan/memory/lifetimes.hpp"
#include "plan/plan.hpp"

namespace weft {

// Places them from `top` on, among the values of a class; returns the first byte behind them. Memory is taken before
// the first writer of a frame and freed behind its last reader or with its layer, or at the end of the pass where
// nothing could use it sooner.
std::int64_t place_frames(Plan& plan, ClassId rank_class, const std::vector<ValueId>& values,
                          const std::vector<Lifetime>& lifetimes, const BesideChain& beside, std::int64_t top);

}  // namespace weft
