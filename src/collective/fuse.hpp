// Joins a receive and the send that forwards it into one instruction, as in MSCCL's own ring files. The data then goes
// from the incoming to the outgoing connection without another trip through memory, and a rank needs fewer blocks.
#pragma once

#include "collective/program.hpp"

namespace weft {

// Merges a block that only receives with one that only sends, of the same rank and channel, where at least half of
// their instructions pair up and the program still works with two message slots. (A ring with one part does; with more
// parts every rank would fill its outgoing connection before it empties its incoming one.) receive_reduce_copy_send
// becomes receive_reduce_send where nobody reads what it would store. The program must be free of hazards. A program
// that does not reach its postcondition is returned unchanged.
Program fused(const Program& program);

}  // namespace weft
