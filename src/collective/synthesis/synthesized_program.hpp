// Programs for all_gather, reduce_scatter and all_reduce that are made for a topology: pieces travel along spanning
// trees that use every link as much as the slowest cut allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/topology.hpp"
#include "collective/program.hpp"
#include "collective/synthesis/least_time.hpp"
#include "collective/synthesis/tree_packing.hpp"

namespace weft {

struct SynthesisRequest {
  Collective kind = Collective::all_gather;  // or reduce_scatter, all_reduce
  bool in_place = false;
  // Every message of a tree is cut into so many that follow each other, so that deep trees keep all links busy.
  std::int64_t parts = 1;
  std::int64_t max_pieces = 64;  // of a rank; more come nearer to the optimum where bandwidths are odd
  // Switches that reduce or multicast take part where that is faster; they become ranks behind the devices.
  bool in_network = false;
  friend bool operator==(const SynthesisRequest&, const SynthesisRequest&) = default;
};

struct Synthesis {
  Program program;
  // The trees of an all_gather (from their roots) and of a reduce_scatter (towards their roots, in the turned
  // topology).
  std::optional<TreePacking> gather, scatter;
  // For a buffer of one byte, with so many parts that all links are busy at once.
  double seconds = 0;
  // What no program beats; without `in_network`, none without switches that take part. Its cut is one of the topology
  // as it was given.
  LeastTime least;
  // Ranks where pieces are added up; all devices unless an all_reduce leaves slow ones out, or adds up in switches.
  std::vector<std::int64_t> roots;
  // The program's ranks behind the devices are these switches, and its messages travel over the links of this topology.
  std::vector<std::string> switches;
  Topology wiring;
};

// Throws Error for other collectives, for numbers out of range, where no switch can take part that should, and where
// pack_trees does.
Synthesis synthesize(const Topology& topology, const SynthesisRequest& request);

// The program along the trees of a synthesis in another number of parts: packing trees takes far longer than this.
Program program_in_parts(const Synthesis& made, const SynthesisRequest& request);

}  // namespace weft
