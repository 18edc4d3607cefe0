// Checks that traces can belong to ranks of one job: their statements must not contradict each other.
#pragma once

#include <span>

#include "timeline/trace/device_trace.hpp"

namespace weft {

// Throws Error naming two files and what contradicts: world sizes, a rank beyond the world, members of a process group,
// traces of ours beside others. Ranks must be known. What only makes one job unlikely (other devices, clocks that are
// far apart) is left to rank_match.
void require_one_job(std::span<const DeviceTrace> traces);

}  // namespace weft
