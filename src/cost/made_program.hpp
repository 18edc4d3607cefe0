// The fastest of the programs that are made for a cluster's topology (collective/synthesis/program_family.hpp), found
// by simulating them all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collective/carried_program.hpp"
#include "cost/choose_program.hpp"
#include "cost/program_store.hpp"

namespace weft {

struct MadeProgram {
  ProgramRef program;
  Nanos time;
};

// Every member of the family with its time, fastest first; ties keep the family's order. Empty where the topology does
// not join the members by themselves. The cluster must have a topology.
std::vector<MadeProgram> rank_made(const ProgramQuestion& question, const Cluster& cluster,
                                   const ProgramTimeOptions& options = {});

// The first of these, or of the generators' programs where one is faster; from the store where that has one which is
// proven.
std::optional<MadeProgram> fastest_made(const ProgramQuestion& question, const Cluster& cluster,
                                        const ProgramTimeOptions& options, ProgramStore* store);

// The time of any program for this question.
Nanos time_of(const Program& program, const ProgramQuestion& question, const Cluster& cluster,
              const ProgramTimeOptions& options);

}  // namespace weft
