// Where a command will write: looked at before the work, so that nobody waits for results that cannot be kept.
#pragma once

#include <string>
#include <vector>

#include "app/flags.hpp"

namespace weft {

// Looks at what the flags name as outputs, where they are given: `folders` may still have to be made, `files` need a
// folder that is there. Throws Error with the flag, the path and the reason; leaves nothing behind. Other processes may
// take the place later, which is then an error of writing.
void require_outputs_can_be_written(const Flags& flags, const std::vector<std::string>& folders,
                                    const std::vector<std::string>& files = {});

}  // namespace weft
