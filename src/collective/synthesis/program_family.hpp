// Programs of many kinds for one collective on one topology. None is the best for all sizes: who asks simulates them
// all and takes the fastest (cost/made_program.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/topology.hpp"
#include "collective/program.hpp"

namespace weft {

struct FamilyRequest {
  Collective kind = Collective::all_gather;  // or reduce_scatter, all_reduce, all_to_all
  bool in_place = false;                     // all_to_all: never
  double bytes = 0;                          // the whole buffer
};

struct FamilyMember {
  std::string name;  // what it is, in words
  Program program;
};

// All members are right by construction; whoever runs one proves it anyway. Empty for other collectives and where the
// devices are too many (kMaxFamilyRanks) or not joined. Members:
//  - forests: spanning trees at the optimum of large buffers (synthesized_program.hpp), with few pieces and many, in
//    1 to 16 parts;
//  - lists: every chunk goes where it arrives first (list_schedule.hpp), 1 to 4 chunks of every rank; between nodes
//  also
//    so that a chunk enters each once, through any device or through 1, 2 or 4 gateways; an all_reduce also with sums
//    at a single root, and at one root per node;
//  - all_to_all: ways that share the links evenly, one chunk after the other (exchanges) or as a flow
//  (exchange_flow.hpp),
//    1 to 4 chunks of every pair.
std::vector<FamilyMember> program_family(const Topology& topology, const FamilyRequest& request);

// Trees through switches that reduce and multicast, with few pieces and many, in 1 to 16 parts: their ranks behind the
// members are switches (switch_ranks.hpp). Empty where no switch can take part, or none makes it as fast as without. A
// switch passes a message on when all of it is there; real ones do so at once, so small buffers may be faster.
std::vector<FamilyMember> switch_family(const Topology& topology, const FamilyRequest& request);

inline constexpr std::int64_t kMaxFamilyRanks = 64;

}  // namespace weft
