// Joins a receive and the send that passes it on into one instruction, as MSCCL's own ring files have them: the data
// goes from the incoming to the outgoing connection without another trip through memory, and a rank needs fewer blocks.
#pragma once

#include "collective/program.hpp"

namespace weft {

// A block that only receives and a block that only sends, of one rank and channel, become one where at least half of
// their instructions pair up and the program still works with two message slots (a ring does with one part; with more,
// every rank would fill its connection before it empties the one before). receive_reduce_copy_send becomes
// receive_reduce_send where nobody reads what it would store. The program must be free of hazards. One that does not
// reach its postcondition comes back as it is.
Program fused(const Program& program);

}  // namespace weft
