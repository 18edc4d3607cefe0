// Frames: the activations that model chunks keep from forward to backward, in memory that the chunks share.
//
// With several model chunks on a rank, each has most forwards in flight at another time. Copies of its own for every
// chunk would add up the chunks' peaks; frames need the peak of the sum.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/memory/lifetimes.hpp"
#include "plan/plan.hpp"

namespace weft {

// By model chunk: the values of a class that a frame may hold. Compute of its forward writes them, and nobody but
// compute of the chunk reads them, so the order of compute alone says when a frame is free.
std::vector<std::vector<ValueId>> framed_values(const Plan& plan, std::size_t rank_class,
                                                const std::vector<ValueId>& values,
                                                const std::vector<Lifetime>& lifetimes);

// Places them from `top` on; returns the first byte behind them.
std::int64_t place_frames(Plan& plan, std::size_t rank_class, const std::vector<std::vector<ValueId>>& values,
                          std::int64_t top);

}  // namespace weft
