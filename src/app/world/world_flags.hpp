// Flags of every command that has ranks talk to each other.
#pragma once

#include "app/flags.hpp"
#include "app/world/world.hpp"

namespace weft {

// --transport, --timeout, --silence and --check.
void declare_world_flags(Flags& flags);
// Throws Error naming the flag, the value and what is allowed.
WorldOptions read_world_options(const Flags& flags, const Launch& launch);

}  // namespace weft
