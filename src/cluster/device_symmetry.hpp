// Which devices of a wired cluster can change places without anybody noticing: the symmetries of its topology that are
// symmetries of its levels too.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "cluster/cluster.hpp"

namespace weft {

class DeviceSymmetry {
 public:
  // The spec must have a topology.
  explicit DeviceSymmetry(const ClusterSpec& spec);

  // Returns whether devices can change places so that from[i] comes to where to[i] is, for every i, and all links,
  // nodes and devices are as before. A search that would take long ends with false: then devices count as different
  // that are not.
  bool can_move(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) const;

 private:
  using Colour = std::uint64_t;
  using Colours = std::vector<Colour>;
  struct Edge {
    std::int32_t to = 0;
    std::int32_t label = 0;  // equal labels: equal links in the same direction
    friend auto operator<=>(const Edge&, const Edge&) = default;
  };

  std::int32_t add_vertex(std::int32_t kind);
  void add_edge(std::int32_t from, std::int32_t to, std::int32_t label);
  void add_topology(const ClusterSpec& spec);
  void add_levels(const Cluster& cluster);
  void refine(Colours& colours) const;
  bool search(Colours from, Colours to, int& tries_left) const;
  bool keeps_edges(const std::vector<std::int32_t>& moved_to) const;

  std::vector<std::vector<Edge>> edges_;  // by vertex; devices come first
  std::vector<std::int32_t> kinds_;       // by vertex
};

}  // namespace weft
