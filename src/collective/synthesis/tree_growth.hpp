// Packs spanning trees into a graph of devices, one edge at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/synthesis/routed_graph.hpp"
#include "collective/synthesis/spanning_tree.hpp"

namespace weft {

// Returns trees that carry `demands[r]` pieces of every device r to all others within the capacities of the graph,
// whose vertices that are no devices have no edges left. missing_pieces must be 0. Trees grow from their root outwards,
// so that they are shallow (Tarjan's proof of Edmonds' theorem; Berczi and Frank, 2010, for trees of several pieces).
std::vector<SpanningTree> grow_trees(RoutedGraph graph, std::span<const std::int32_t> devices,
                                     std::span<const std::int64_t> demands);

}  // namespace weft
