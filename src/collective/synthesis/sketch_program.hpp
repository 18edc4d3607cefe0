// Programs by TACCL's synthesis: routes (sketch_routes.hpp), order and contiguity (sketch_times.hpp) as a program.
#pragma once

#include <vector>

#include "collective/synthesis/program_family.hpp"
#include "collective/synthesis/sketch.hpp"

namespace weft {

// A program for each of TACCL's two orders, with chunks joined and apart. A reduce_scatter is an all_gather on the
// turned topology backwards, an all_reduce both, as in TACCL. Throws Error for other collectives, and what
// logical_topology() and route_chunks() throw. `solver_seconds` as in RoutingOptions.
std::vector<FamilyMember> sketch_family(const Topology& topology, const FamilyRequest& request, const Sketch& sketch,
                                        double solver_seconds);

}  // namespace weft
