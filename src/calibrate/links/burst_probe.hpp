// What a shaped link saves up while it is idle (LevelSpec::burst), seen from outside: an answer of S bytes after a
// pause takes a small answer's time and that of S minus the burst.
#pragma once

#include "base/units.hpp"
#include "calibrate/links/probe_door.hpp"

namespace weft {

// The side that asks; `rate` is what the link carries in the long run, in bytes a second. None where it is too small to
// be told from chance, and where the other side does not answer.
Bytes ask_for_bursts(ProbeDoor& door, double rate);
// The side that answers, until it is asked no more.
void answer_in_bursts(const ProbeDoor& door);

}  // namespace weft
