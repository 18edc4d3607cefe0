// Finds who writes and reads each value, and which values share memory because an operation works in place.
#pragma once

#include <vector>

#include "plan/plan.hpp"

namespace weft {

// Time within an execution of a block is counted in half steps: the operation at position p of the block, where it is
// in the chain of compute and blocking transfers, begins at 2 p and ends at 2 p + 1.
struct Lifetime {
  std::vector<OpId> writers;
  std::vector<OpId> readers;
  BlockId block;                     // where it is written
  bool leaves_block = false;         // read in another block, or when a transfer uses it is not known
  bool carried = false;              // a late operation reads it in the next pass (plan/late.hpp)
  std::int32_t begin = 0, end = 0;   // half steps: two values of which one ends no later than the other begins may
                                     // share memory
  std::int32_t first = 0, last = 0;  // positions: written, last used
  // Leaves its block, but compute of the block waits for the transfers that read it: it holds its memory from `first`
  // to `last`, which counts on into the block's next execution, and is free before it is written anew.
  bool pooled = false;
};

// Results are by ValueId. An operation that runs beside the chain starts after the last one in the chain that it waits
// for, and has ended when the first one that waits for it begins, be it for data, in its queue or by an explicit wait.
// Lifetimes are as short as that makes them. Waits come first and memory follows: a policy states what may overlap
// what, the placer shares the memory that this leaves free, and there is nothing that placing anew could leave behind.
std::vector<Lifetime> find_lifetimes(const Plan& plan);

// Returns whose memory each value shares: its own, the buffer that an in-place reduction or gather works in, or the
// gradient that a decoded sum replaces.
std::vector<ValueId> find_storage(const Plan& plan);

}  // namespace weft
