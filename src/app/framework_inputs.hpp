// What --framework means for flags that were not given.
#pragma once

#include <string>

#include "app/flags.hpp"

namespace weft {

// Sets what the framework does by default where flags are silent: sequence parallelism, clipping, how layers are dealt
// to stages.
void apply_framework_defaults(Flags& flags);
// The policy that --policy names, or the framework's own; `serial` without either.
std::string framework_policy(const Flags& flags);

}  // namespace weft
