// Who writes and reads each value, and which values share memory because an operation works in place.
#pragma once

#include <vector>

#include "plan/plan.hpp"

namespace weft {

struct Lifetime {
  std::vector<OpId> writers;
  std::vector<OpId> readers;
  std::int32_t block = -1;           // where it is written
  bool leaves_block = false;         // read in another block, or touched by a transfer that runs beside compute
  std::int32_t first = 0, last = 0;  // positions in the block: written, last read
};

std::vector<Lifetime> find_lifetimes(const Plan& plan);  // by ValueId

// The value whose memory each value shares: itself, or the buffer that an in-place reduction or gather works in.
std::vector<ValueId> find_storage(const Plan& plan);

}  // namespace weft
