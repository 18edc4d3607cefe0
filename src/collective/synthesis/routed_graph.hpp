// A graph with whole capacities whose edges remember the way that they stand for. Switches are taken out of it one by
// one: what came in over one link and left over another becomes an edge past the switch, so that only devices remain.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "cluster/topology.hpp"

namespace weft {

// Some of the capacity of an edge, with all vertices on its way from end to end.
struct Route {
  std::vector<std::int32_t> vertices;
  std::int64_t capacity = 0;
  friend bool operator==(const Route&, const Route&) = default;
};

// Capacity of from -> through -> to that goes past `through`.
struct Bypass {
  std::int32_t from = 0, through = 0, to = 0;
  std::int64_t capacity = 0;
};

class RoutedGraph {
 public:
  explicit RoutedGraph(std::size_t vertices) : vertices_(vertices) {}

  std::size_t vertex_count() const { return vertices_; }
  std::int64_t capacity(std::int32_t from, std::int32_t to) const;
  // By (from, to); only edges with capacity.
  const std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t>& edges() const { return capacity_; }
  std::vector<std::int32_t> sources_of(std::int32_t vertex) const;
  std::vector<std::int32_t> targets_of(std::int32_t vertex) const;

  void add(std::int32_t from, std::int32_t to, const Route& route);
  // Takes capacity out, with its routes.
  std::vector<Route> take(std::int32_t from, std::int32_t to, std::int64_t capacity);
  // Moves capacity onto an edge from end to end; where both ends are one vertex it is dropped.
  void apply(const Bypass& bypass);

 private:
  std::size_t vertices_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> capacity_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Route>> routes_;
};

// `demands[i]` pieces start at `devices[i]` and must reach every device. Returns how many of them do not reach the
// device that is worst off, once `tried` is applied; 0: spanning trees for all of them exist (Edmonds). It stops
// counting at the capacity of `tried`.
std::int64_t missing_pieces(const RoutedGraph& graph, std::span<const std::int32_t> devices,
                            std::span<const std::int64_t> demands, const Bypass& tried = {});

// Removes all vertices but devices and keeps missing_pieces at 0, which it must be (Bang-Jensen, Frank and Jackson,
// "Preserving and increasing local edge-connectivity in mixed graphs", 1995). Pieces may be missing afterwards where
// such a vertex takes in more than it gives out, or less.
void remove_switches(RoutedGraph& graph, std::span<const std::int32_t> devices, std::span<const std::int64_t> demands);

}  // namespace weft
