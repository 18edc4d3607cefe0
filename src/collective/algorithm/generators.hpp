// The generators behind make_program, one file per family. Requests are checked before they get here, and have two or
// more ranks.
#pragma once

#include "collective/algorithms.hpp"
#include "collective/program_builder.hpp"

namespace weft {

Program ring_program(const ProgramRequest& request);
Program bidirectional_ring_program(const ProgramRequest& request);
Program binomial_tree_program(const ProgramRequest& request);
Program double_tree_program(const ProgramRequest& request);
Program recursive_doubling_program(const ProgramRequest& request);
Program recursive_halving_program(const ProgramRequest& request);
Program bruck_program(const ProgramRequest& request);
Program pairwise_program(const ProgramRequest& request);
Program direct_program(const ProgramRequest& request);
Program reduce_broadcast_program(const ProgramRequest& request);
Program parameter_server_program(const ProgramRequest& request);
Program hierarchical_program(const ProgramRequest& request);

// all_to_all with one message per pair (and part), pairs in the order of their distance.
void exchange_pairs(ProgramBuilder& builder);

}  // namespace weft
