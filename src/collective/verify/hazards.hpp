// Whether all instructions of a rank that touch the same slot, one of them writing, are ordered by what they wait for,
// so that every timing gives the same result.
#pragma once

#include <optional>

#include "collective/verify/order.hpp"

namespace weft {

// `order` must have a sequence. Memory grows with the instructions of one rank times its blocks. Time grows with that
// over all ranks; for a rank whose conflicts are ordered only through other ranks, with all instructions times its
// blocks.
std::optional<Finding> find_hazard(const Program& program, const ProgramOrder& order);

}  // namespace weft
