// Packs memory that executions of a block use in turns.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.hpp"

namespace weft {

struct Slab {
  std::int32_t first = 0, last = 0;  // positions in the block; `last` may lie in its next execution
  std::vector<ValueId> values;
  std::int64_t size = 0;
  std::int64_t begin = 0;  // found by pack_in_turns
};

// Packs by first fit from `base` on, the largest first. Executions of the block are `length` positions apart, and no
// lifetime is longer than that. Returns the highest address used.
std::int64_t pack_in_turns(std::vector<Slab>& slabs, std::int64_t base, std::int32_t length);

}  // namespace weft
