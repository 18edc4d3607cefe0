// A tree over all ranks that carries pieces of one of them.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/synthesis/routed_graph.hpp"

namespace weft {

struct TreeEdge {
  std::int32_t from = 0, to = 0;  // ranks
  std::vector<Route> routes;      // over vertices of the topology; their capacities add up to the tree's pieces
};

// Carries some pieces of its root to all other ranks.
struct SpanningTree {
  std::int32_t root = 0;  // a rank
  std::int64_t pieces = 0;
  std::vector<TreeEdge> edges;  // parents first
};

}  // namespace weft
