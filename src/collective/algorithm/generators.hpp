// The generators behind make_program, one file per family. Requests are checked before they get here.
#pragma once

#include "collective/algorithms.hpp"

namespace weft {

Program ring_program(const ProgramRequest& request);

}  // namespace weft
