// Spanning trees that share the links of a topology so that every device gathers at the rate that the slowest cut
// allows (Zhao et al., "ForestColl", arXiv 2402.06787).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cluster/topology.hpp"
#include "cluster/topology_cuts.hpp"
#include "collective/synthesis/spanning_tree.hpp"

namespace weft {

struct TreePacking {
  std::vector<std::int64_t> pieces;  // that start at each rank
  std::vector<SpanningTree> trees;
  GatherCut cut;             // no all_gather of these pieces is faster than this cut
  double seconds = 0;        // for a buffer of one byte, if the links carry nothing else
  double least_seconds = 0;  // what the cut allows

  // How near the trees come to the optimum: 1, or a little less where it would take too many pieces.
  double of_optimum() const { return least_seconds / seconds; }
};

// `shares[r]` says how much of the buffer starts at rank r, relative to the others; ranks of one share have equally
// many pieces. At most `max_pieces` per share are used; where the optimum takes more, the best packing with fewer is
// returned. Throws Error where a vertex other than a device takes in more than it gives out.
TreePacking pack_trees(const Topology& topology, std::span<const std::int64_t> shares, std::int64_t max_pieces);

// For every vertex the first one that is wired alike, up to a factor of all its bandwidths: messages are spread over
// such switches as over one. Devices are like themselves alone.
std::vector<std::int32_t> like_switches(const Topology& topology);

// Bytes that cross each link of the topology, for a buffer of one byte.
std::vector<double> link_loads(const Topology& topology, const TreePacking& packing);

}  // namespace weft
