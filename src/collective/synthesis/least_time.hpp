// What no all_gather, reduce_scatter or all_reduce on a topology beats, for large buffers.
#pragma once

#include <cstdint>

#include "cluster/topology.hpp"
#include "cluster/topology_cuts.hpp"
#include "collective/collective.hpp"

namespace weft {

struct LeastTime {
  double seconds = 0;  // for a buffer of one byte
  GatherCut cut;       // the slowest; it allows `seconds` where `senders` is 0
  // An all_reduce whose sums are made and copied inside of N senders alone (devices, or nodes with what is in them)
  // sends 2 (N-1) buffers between them: N-1 messages at least until some sender knows the sum of a byte, and N-1 more
  // until all do. Where that takes longer than the cut allows, N and what all senders together can send or receive.
  std::int64_t senders = 0;
  double senders_bytes_per_second = 0;
  bool senders_are_nodes = false;
};

// With `in_network`, switches that reduce or multicast may take part: the bound holds for programs with them too.
LeastTime least_time(const Topology& topology, Collective kind, bool in_network);

}  // namespace weft
