// The progress of a study (study/progress.hpp) as bars on a terminal.
#pragma once

#include <ostream>

#include "study/progress.hpp"

namespace weft {

// Draws on `terminal`; where that is null, nothing is drawn and the result is empty.
OnProgress progress_bars(std::ostream* terminal);

}  // namespace weft
