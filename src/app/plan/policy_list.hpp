// --policy: which policies a command is about.
#pragma once

#include <string>
#include <vector>

#include "app/flags.hpp"

namespace weft {

// All of them where the flag is not given. Throws Error for a name that is unknown or named twice.
std::vector<std::string> read_policies(const Flags& flags);

}  // namespace weft
