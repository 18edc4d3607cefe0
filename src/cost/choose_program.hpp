// Finds which algorithm, in how many parts, carries out a collective fastest; every candidate is timed by simulation.
#pragma once

#include <optional>
#include <vector>

#include "collective/algorithms.hpp"
#include "cost/program_time.hpp"

namespace weft {

struct ProgramQuestion {
  Collective kind = Collective::all_reduce;
  std::int64_t elements = 0;  // of the whole buffer (collective/piece_sizes.hpp)
  Bytes element_size{4};
  std::int64_t root = 0;
  bool in_place = true;
  std::vector<Rank> members;  // devices of the cluster
};

struct ProgramChoice {
  ProgramRequest request;
  Nanos time;
};

// Returns all candidates but the hopeless ones, fastest first; ties keep the order of the algorithms, fewer parts
// first. Inner groups of hierarchical programs are the members of one node, where all nodes have equally many.
std::vector<ProgramChoice> rank_programs(const ProgramQuestion& question, const Cluster& cluster,
                                         const ProgramTimeOptions& options = {});
// Returns the first of these, to within 1 part in 100,000, with far fewer simulations: it stops at a program that takes
// no longer than one latency and the least bytes that any algorithm moves.
ProgramChoice fastest_program(const ProgramQuestion& question, const Cluster& cluster,
                              const ProgramTimeOptions& options = {});
// The best part count of one algorithm; nothing where it has no such program.
std::optional<ProgramChoice> best_parts(Algorithm algorithm, const ProgramQuestion& question, const Cluster& cluster,
                                        const ProgramTimeOptions& options = {});

// The algorithm in just so many parts.
std::optional<ProgramChoice> with_parts(Algorithm algorithm, std::int64_t parts, const ProgramQuestion& question,
                                        const Cluster& cluster, const ProgramTimeOptions& options = {});

// How many consecutive members share a node, where that is the same for all; 0 otherwise or where it is 1 or all.
std::int64_t members_per_node(const Cluster& cluster, const std::vector<Rank>& members);

}  // namespace weft
