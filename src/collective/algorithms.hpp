// The classic algorithms as generators of programs. Each works for any number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/program.hpp"

namespace weft {

struct ProgramRequest {
  Algorithm algorithm = Algorithm::ring;
  Collective kind = Collective::all_reduce;
  std::int64_t ranks = 1;
  std::int64_t root = 0;   // of broadcast, reduce, gather, scatter; the sender of send_recv
  std::int64_t parts = 1;  // pieces that a message is cut into for pipelining through the ranks
  bool in_place = false;
  std::int64_t inner = 0;    // hierarchical: ranks of an inner group, which are consecutive; divides `ranks`
  std::int64_t servers = 0;  // parameter_server: ranks beside the workers that reduce; 0: the workers serve each other
  friend bool operator==(const ProgramRequest&, const ProgramRequest&) = default;
};

// Whether there is a generator of the algorithm for the collective.
bool supports(Algorithm algorithm, Collective kind);
// The algorithms that support it, in the order of the enumeration.
std::vector<Algorithm> algorithms_for(Collective kind);

// Throws Error where the algorithm does not support the collective or a number is out of range.
Program make_program(const ProgramRequest& request);

}  // namespace weft
