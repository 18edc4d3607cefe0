// Who writes and reads each value, and which values share memory because an operation works in place.
#pragma once

#include <vector>

#include "plan/plan.hpp"

namespace weft {

struct Lifetime {
  std::vector<OpId> writers;
  std::vector<OpId> readers;
  std::int32_t block = -1;           // where it is written
  bool leaves_block = false;         // read in another block, or touched by a transfer that runs beside compute
  std::int32_t first = 0, last = 0;  // positions in the block: written, last read
  // Leaves its block, but compute of the block waits for the transfers that read it: it holds its memory from `first`
  // to `last`, which counts on into the block's next execution, and is free before it is written anew.
  bool pooled = false;
};

// By ValueId. Where explicit waits say when transfers that run beside compute start or have ended, lifetimes are as
// short as the waits make them. Waits come first and memory follows: a policy states what may overlap what, the placer
// shares the memory that this leaves free, and there is nothing that placing anew could leave behind.
std::vector<Lifetime> find_lifetimes(const Plan& plan);

// The value whose memory each value shares: itself, or the buffer that an in-place reduction or gather works in.
std::vector<ValueId> find_storage(const Plan& plan);

}  // namespace weft
