// What the slowest cut of a topology allows: the exact time of the fastest all_gather on it, and its bisection.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cluster/topology.hpp"

namespace weft {

// A set of vertices with what devices in it have to send to those outside.
struct GatherCut {
  std::vector<bool> inside;        // by vertex
  std::int64_t weight = 0;         // of the devices inside
  std::int64_t out_bandwidth = 0;  // of all links that leave the set, in units (kBandwidthUnit)
};

// Returns the set with the largest weight per bandwidth that leaves it, of those that do not hold all devices: while a
// device gathers `weights[r]` pieces from every rank r, so much must leave the set, so no all_gather takes less time,
// and spanning trees reach it (Zhao et al., "ForestColl", arXiv 2402.06787, theorem 1). Every max-flow that falls short
// names a slower cut, so the search ends after a few of them (Newton's method on the ratio); all numbers are exact.
GatherCut slowest_gather_cut(const Topology& topology, std::span<const std::int64_t> weights);
// The same, where every rank has one piece.
GatherCut slowest_gather_cut(const Topology& topology);

// Bytes a second at which the whole buffer is gathered: N pieces in the time that the cut needs for its weight.
Bandwidth gather_bandwidth(const GatherCut& cut, std::int64_t pieces);

struct Bisection {
  std::vector<std::int32_t> half;  // ranks
  Bandwidth bandwidth;             // the largest flow from them to the others
  bool of_all_halves = true;       // otherwise only halves of consecutive ranks were tried
};
Bisection slowest_bisection(const Topology& topology);

// Every link turned around: an all_gather there is a reduce_scatter here.
Topology reversed(const Topology& topology);

}  // namespace weft
