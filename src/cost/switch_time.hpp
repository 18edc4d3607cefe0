// Times of programs in which switches reduce and multicast: their ranks behind the members are switches of the
// cluster's topology (collective/synthesis/switch_ranks.hpp).
#pragma once

#include <vector>

#include "collective/synthesis/switch_ranks.hpp"
#include "cost/program_time.hpp"

namespace weft {

// `lowered` is the program for some size. Of the ways in which as many switches may take part, the fastest counts.
// switch_fault() must find nothing.
Nanos switch_program_time(const Program& program, const std::vector<LoweredRank>& lowered, const Cluster& cluster,
                          const std::vector<Rank>& members, const ProgramTimeOptions& options);

// The same while other groups carry out the same program, each with switches of its own wiring, which may be the same:
// a switch works for all of them. Where wirings differ too much for that, as if the groups took turns.
Nanos switch_program_time_beside(const Program& program, const std::vector<LoweredRank>& lowered,
                                 const Cluster& cluster, const std::vector<std::vector<Rank>>& groups,
                                 const ProgramTimeOptions& options);

}  // namespace weft
