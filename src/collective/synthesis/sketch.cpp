#include "collective/synthesis/sketch.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "cluster/topology_way.hpp"

namespace weft {
namespace {

// Whether the way goes over switches alone.
bool passes_a_device(const Topology& topology, const Way& way, Rank dst) {
  const std::int32_t end = topology.devices()[dst.index()];
  return std::ranges::any_of(way.links, [&](std::int32_t link) {
    const std::int32_t at = topology.links[link].to;
    return at != end && topology.vertices[at].kind == VertexKind::device;
  });
}

// Nodes in the order of their first ranks; every rank's place among those of its node.
void place_ranks(const Topology& topology, LogicalTopology& result) {
  std::map<std::int64_t, std::int64_t> number, members;
  for (const std::int32_t device : topology.devices()) {
    const std::int64_t node = topology.vertices[device].node;
    result.node.push_back(number.try_emplace(node, std::ssize(number)).first->second);
    result.place.push_back(members[node]++);
  }
}

bool may_send(const Sketch& sketch, const LogicalTopology& logical, std::int32_t from, std::int32_t to) {
  if (logical.node[from] == logical.node[to]) return true;
  if (sketch.crosses_to_same_place) return logical.place[from] == logical.place[to];
  if (sketch.crossings.empty()) return true;
  const auto sender = sketch.crossings.find(logical.place[from]);
  if (sender == sketch.crossings.end()) return false;
  return std::ranges::find(sender->second, logical.place[to]) != sender->second.end();
}

void check_places(const Sketch& sketch, const LogicalTopology& logical) {
  const std::int64_t nodes = *std::ranges::max_element(logical.node) + 1;
  if (sketch.nodes != nodes) {
    fail("{}: nnodes {}: the topology has {} node{}", sketch.name, sketch.nodes, nodes, nodes == 1 ? "" : "s");
  }
  const std::int64_t places = *std::ranges::max_element(logical.place) + 1;
  const auto check = [&](std::int64_t place, const char* key) {
    if (place < 0 || place >= places) fail("{}: {}: GPU {} is not in 0..{}", sketch.name, key, place, places - 1);
  };
  for (const auto& [sender, receivers] : sketch.crossings) {
    check(sender, "internode_conn");
    for (const std::int64_t receiver : receivers) check(receiver, "internode_conn");
  }
  for (const auto& [sender, owners] : sketch.sends_for) {
    check(sender, "gpus_to_sender_rev_map");
    for (const std::int64_t owner : owners) check(owner, "gpus_to_sender_rev_map");
  }
}

void check_reach(const Sketch& sketch, const LogicalTopology& logical) {
  for (std::int32_t start = 0; start < logical.ranks; ++start) {
    std::vector<std::int32_t> found{start};
    std::set<std::int32_t> seen{start};
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (const std::int32_t edge : logical.out[found[i]]) {
        if (seen.insert(logical.edges[edge].to).second) found.push_back(logical.edges[edge].to);
      }
    }
    if (std::ssize(found) == logical.ranks) continue;
    std::int32_t missed = 0;
    while (seen.contains(missed)) ++missed;
    fail("{}: rank {} cannot reach rank {} over the links that the sketch leaves", sketch.name, start, missed);
  }
}

}  // namespace

double LogicalEdge::alone(double bytes) const {
  double slowest = 0;
  for (const auto& [link, seconds] : links) slowest = std::max(slowest, seconds);
  return latency + slowest * bytes;
}

std::int32_t LogicalTopology::edge(std::int32_t from, std::int32_t to) const {
  for (const std::int32_t found : out[from]) {
    if (edges[found].to == to) return found;
  }
  return -1;
}

LogicalTopology logical_topology(const Topology& topology, const Sketch& sketch) {
  LogicalTopology result;
  place_ranks(topology, result);
  check_places(sketch, result);
  result.ranks = static_cast<std::int32_t>(result.node.size());
  result.links = static_cast<std::int32_t>(topology.links.size());
  result.out.resize(result.ranks);
  result.in.resize(result.ranks);
  for (std::int32_t from = 0; from < result.ranks; ++from) {
    for (std::int32_t to = 0; to < result.ranks; ++to) {
      if (from == to || !may_send(sketch, result, from, to)) continue;
      const Way way = topology_way(topology, Rank{from}, Rank{to});
      if (passes_a_device(topology, way, Rank{to})) continue;
      const double latency = seconds(way.latency);
      LogicalEdge edge{from, to, latency, sketch.blocking_latency ? latency : 0, {}};
      for (std::size_t i = 0; i < way.links.size(); ++i) {
        edge.links.emplace_back(way.links[i], way.shares[i] / topology.links[way.links[i]].bandwidth.bytes_per_second);
      }
      result.out[from].push_back(static_cast<std::int32_t>(result.edges.size()));
      result.in[to].push_back(static_cast<std::int32_t>(result.edges.size()));
      result.edges.push_back(std::move(edge));
    }
  }
  check_reach(sketch, result);
  return result;
}

}  // namespace weft
