// Colour refinement with individualisation, as programs for graph isomorphism do it. Colours are hashes and only guide
// the search; a symmetry counts once all edges have been compared.
#include "cluster/device_symmetry.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "cluster/topology.hpp"

namespace weft {
namespace {

constexpr int kMostTries = 400;

std::uint64_t mixed_colour(std::uint64_t a, std::uint64_t b) {  // splitmix64's finalizer
  std::uint64_t x = a * 0x9E3779B97F4A7C15ULL + b + 0x632BE59BD9B4E019ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Numbers facts in the order in which they are first asked for.
template <typename Fact>
class Numbering {
 public:
  explicit Numbering(std::int32_t first) : first_(first) {}
  std::int32_t of(const Fact& fact) {
    const auto known = std::find(facts_.begin(), facts_.end(), fact) - facts_.begin();
    if (known == std::ssize(facts_)) facts_.push_back(fact);
    return first_ + static_cast<std::int32_t>(known);
  }

 private:
  std::int32_t first_;
  std::vector<Fact> facts_;
};

// Ranges of numbers for kinds of vertices and labels of edges, which must not meet.
constexpr std::int32_t kWired = 0, kLevelLinks = 1'000'000, kNodes = 2'000'000, kLeaf = 3'000'000, kParts = 4'000'000;

std::size_t distinct_colours(std::vector<std::uint64_t> colours) {
  std::sort(colours.begin(), colours.end());
  return static_cast<std::size_t>(std::unique(colours.begin(), colours.end()) - colours.begin());
}

}  // namespace

DeviceSymmetry::DeviceSymmetry(const ClusterSpec& spec) {
  ClusterSpec in_order = spec;
  in_order.device_map.clear();
  add_topology(spec);
  add_levels(Cluster(in_order));
}

std::int32_t DeviceSymmetry::add_vertex(std::int32_t kind) {
  kinds_.push_back(kind);
  edges_.emplace_back();
  return static_cast<std::int32_t>(kinds_.size()) - 1;
}

// Both ends know an edge: the far end under the negative label.
void DeviceSymmetry::add_edge(std::int32_t from, std::int32_t to, std::int32_t label) {
  edges_[from].push_back({to, label + 1});
  edges_[to].push_back({from, -label - 1});
}

void DeviceSymmetry::add_topology(const ClusterSpec& spec) {
  const Topology& topology = *spec.topology;
  Numbering<std::tuple<VertexKind, bool, bool>> kinds(kWired);
  Numbering<std::pair<double, std::int64_t>> labels(kWired);
  const auto kind_of = [&](const TopologyVertex& v) { return kinds.of({v.kind, v.multicasts, v.reduces}); };
  std::vector<std::int32_t> place(topology.vertices.size());
  for (const bool devices : {true, false}) {
    for (std::size_t v = 0; v < topology.vertices.size(); ++v) {
      if ((topology.vertices[v].kind == VertexKind::device) != devices) continue;
      place[v] = add_vertex(kind_of(topology.vertices[v]));
    }
  }
  for (const TopologyLink& link : topology.links) {
    add_edge(place[link.from], place[link.to], labels.of({link.bandwidth.bytes_per_second, link.latency.value}));
  }
}

// A vertex for every link, domain of a fabric inside nodes, node and leaf, with an edge from every device at it.
void DeviceSymmetry::add_levels(const Cluster& cluster) {
  Numbering<Link> link_kinds(kLevelLinks);
  Numbering<Device> node_kinds(kNodes);
  std::map<std::int32_t, std::int32_t> links, nodes, leaves;
  std::map<std::pair<LevelId, std::int64_t>, std::int32_t> parts;
  for (std::int32_t d = 0; d < cluster.device_count(); ++d) {
    for (std::size_t level = 0; level < cluster.level_count(); ++level) {
      const LinkId id = cluster.link_of(make_id<LevelId>(level), Rank{d});
      const auto [at, is_new] = links.try_emplace(id.value, -1);
      if (is_new) at->second = add_vertex(link_kinds.of(cluster.links()[id.index()]));
      add_edge(d, at->second, kLevelLinks);
    }
    for (const LevelId fabric : cluster.fabrics()) {
      if (cluster.spec().levels[fabric.index()].joins != Domain::part) continue;
      const auto [at, is_new] = parts.try_emplace({fabric, cluster.domain_of(fabric, Rank{d})}, -1);
      if (is_new) at->second = add_vertex(kParts + fabric.value);
      add_edge(d, at->second, kParts + fabric.value);
    }
    const NodeId node = cluster.node_of(Rank{d});
    const auto [at, is_new] = nodes.try_emplace(node.value, -1);
    if (is_new) {
      at->second = add_vertex(node_kinds.of(cluster.device(Rank{d})));
      if (const std::int64_t per_leaf = cluster.spec().nodes_per_leaf; per_leaf > 0) {
        const auto [leaf, new_leaf] = leaves.try_emplace(static_cast<std::int32_t>(node.value / per_leaf), -1);
        if (new_leaf) leaf->second = add_vertex(kLeaf);
        add_edge(at->second, leaf->second, kLeaf);
      }
    }
    add_edge(d, at->second, kNodes);
  }
}

// Until no further vertices are told apart: what a vertex sees is its colour and the multiset of its neighbours'.
void DeviceSymmetry::refine(Colours& colours) const {
  for (std::size_t before = 0, now = distinct_colours(colours); now > before;) {
    Colours next(colours.size());
    for (std::size_t v = 0; v < colours.size(); ++v) {
      Colour sum = 0;  // of mixed colours: a hash of the multiset
      for (const Edge& edge : edges_[v]) sum += mixed_colour(colours[edge.to], static_cast<Colour>(edge.label));
      next[v] = mixed_colour(colours[v], sum);
    }
    colours = std::move(next);
    before = now;
    now = distinct_colours(colours);
  }
}

bool DeviceSymmetry::keeps_edges(const std::vector<std::int32_t>& moved_to) const {
  for (std::size_t v = 0; v < edges_.size(); ++v) {
    if (kinds_[v] != kinds_[moved_to[v]]) return false;
    std::vector<Edge> moved = edges_[v], there = edges_[moved_to[v]];
    for (Edge& edge : moved) edge.to = moved_to[edge.to];
    std::sort(moved.begin(), moved.end());
    std::sort(there.begin(), there.end());
    if (moved != there) return false;
  }
  return true;
}

bool DeviceSymmetry::search(Colours from, Colours to, int& tries_left) const {
  if (tries_left-- <= 0) return false;
  refine(from);
  refine(to);
  std::unordered_map<Colour, std::vector<std::int32_t>> cells;  // vertices of `to`
  std::unordered_map<Colour, std::size_t> count;                // vertices of `from`
  for (std::size_t v = 0; v < to.size(); ++v) cells[to[v]].push_back(static_cast<std::int32_t>(v));
  for (const Colour colour : from) ++count[colour];
  if (cells.size() != count.size()) return false;
  for (const auto& [colour, size] : count) {
    const auto cell = cells.find(colour);
    if (cell == cells.end() || cell->second.size() != size) return false;
  }
  const auto open = std::find_if(from.begin(), from.end(), [&](Colour colour) { return count[colour] > 1; });
  if (open == from.end()) {
    std::vector<std::int32_t> moved_to;
    for (const Colour colour : from) moved_to.push_back(cells[colour].front());
    return keeps_edges(moved_to);
  }
  const Colour shared = *open;
  *open = mixed_colour(shared, 1);
  for (const std::int32_t candidate : cells[shared]) {
    Colours chosen = to;
    chosen[candidate] = mixed_colour(shared, 1);
    if (search(from, std::move(chosen), tries_left)) return true;
  }
  return false;
}

bool DeviceSymmetry::can_move(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) const {
  if (from == to) return true;
  Colours a(kinds_.size()), b;
  for (std::size_t v = 0; v < a.size(); ++v) a[v] = mixed_colour(0, static_cast<Colour>(kinds_[v]));
  b = a;
  for (std::size_t i = 0; i < from.size(); ++i) {
    a[from[i]] = mixed_colour(a[from[i]], 2 + i);
    b[to[i]] = mixed_colour(b[to[i]], 2 + i);
  }
  int tries_left = kMostTries;
  return search(std::move(a), std::move(b), tries_left);
}

}  // namespace weft
