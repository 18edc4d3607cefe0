// Programs for one size of a collective on a topology: those that are made for it, the generators', those of files and
// those with steps in its switches, all timed by the same simulation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.hpp"
#include "cluster/topology.hpp"
#include "cluster/wired_cluster.hpp"
#include "collective/carried_program.hpp"
#include "collective/synthesis/sketch.hpp"
#include "cost/program_store.hpp"

namespace weft {

enum class ProgramOrigin : std::uint8_t { made, generator, file, in_network, sketch };
std::string_view name_of(ProgramOrigin origin);

struct SizedCandidate {
  ProgramOrigin origin = ProgramOrigin::made;
  std::string name;
  Nanos time;
  Program program;
};

struct SizedSynthesis {
  Bytes size;
  std::vector<SizedCandidate> candidates;  // fastest first
  // The fastest one of an origin.
  const SizedCandidate* best_of(ProgramOrigin origin) const;
};

struct SizedRequest {
  Collective kind = Collective::all_gather;
  bool in_place = false;
  Bytes size{1 << 20};
  std::vector<ProgramRef> files = {};  // proven, for this collective and number of ranks
  bool in_network = false;             // programs with steps in switches too
  std::vector<Sketch> sketches = {};   // each gives programs by TACCL's synthesis
  double solver_seconds = 0;           // of a sketch's routes (collective/synthesis/sketch_routes.hpp)
};

SizedSynthesis synthesize_for_size(const Topology& topology, const SizedRequest& request);

}  // namespace weft
