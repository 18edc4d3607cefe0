// Measures the burst that a shaped link saves up while it is idle (LevelSpec::burst). After a pause, an answer of S
// bytes takes the time of a small answer plus the time of S minus the burst.
#pragma once

#include "base/units.hpp"
#include "calibrate/links/probe_door.hpp"

namespace weft {

// The side that asks. `rate` is what the link carries in the long run, in bytes a second. Returns 0 where the burst is
// too small to tell from noise, and where the other side does not answer.
Bytes ask_for_bursts(ProbeDoor& door, double rate);
// The side that answers. It returns when no more questions come.
void answer_in_bursts(const ProbeDoor& door);

}  // namespace weft
