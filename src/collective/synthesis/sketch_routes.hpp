// The first step of TACCL's synthesis: which edges every chunk takes. Times are relaxed: a chunk arrives as if it were
// alone, and no link has more to carry than fits into the whole time, but chunks do not wait for each other yet.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/synthesis/sketch.hpp"

namespace weft {

struct RoutedChunk {
  std::int32_t source = 0;
  std::vector<std::int32_t> edges;  // a tree, from the source outwards, to all ranks
  friend bool operator==(const RoutedChunk&, const RoutedChunk&) = default;
};

struct SketchRoutes {
  std::vector<RoutedChunk> chunks;  // chunk s `sketch.chunks` + k starts at rank s
  double seconds = 0;               // relaxed
  bool by_solver = false;           // the relaxed time is the least that there is
};

struct RoutingOptions {
  double chunk_bytes = 0;
  // CBC, for so long, where it is installed; 0: no solver. What is found then depends on the machine's speed.
  double solver_seconds = 0;
};

// Brings every rank's chunks to all ranks. Without the solver, and where it does not end in time, chunk after chunk
// grows a tree along the edges with the least to carry, and is rerouted three times.
SketchRoutes route_chunks(const LogicalTopology& logical, const Sketch& sketch, const RoutingOptions& options);

// The longest of the chunks' arrivals and of the links' loads.
double relaxed_seconds(const LogicalTopology& logical, const std::vector<RoutedChunk>& chunks, double chunk_bytes);

// Whether a chunk of a rank may take an edge: between nodes only those senders that the sketch names for it.
bool may_carry(const LogicalTopology& logical, const Sketch& sketch, std::int32_t source, std::int32_t edge);

}  // namespace weft
