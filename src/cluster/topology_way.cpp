#include "cluster/topology_way.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::int32_t kFar = std::numeric_limits<std::int32_t>::max();

std::vector<std::vector<std::int32_t>> links_out(const Topology& topology) {
  std::vector<std::vector<std::int32_t>> out(topology.vertices.size());
  for (std::size_t i = 0; i < topology.links.size(); ++i) {
    out[topology.links[i].from].push_back(static_cast<std::int32_t>(i));
  }
  return out;
}

// How many links each vertex is away from `src`, and the vertices in that order.
struct Distances {
  std::vector<std::int32_t> links;
  std::vector<std::int32_t> order;
};

Distances distances_from(const Topology& topology, const std::vector<std::vector<std::int32_t>>& out, std::int32_t src,
                         bool through_devices) {
  Distances found{std::vector<std::int32_t>(topology.vertices.size(), kFar), {src}};
  found.links[src] = 0;
  for (std::size_t i = 0; i < found.order.size(); ++i) {
    const std::int32_t at = found.order[i];
    if (at != src && !through_devices && topology.vertices[at].kind == VertexKind::device) continue;
    for (const std::int32_t link : out[at]) {
      const std::int32_t next = topology.links[link].to;
      if (found.links[next] != kFar) continue;
      found.links[next] = found.links[at] + 1;
      found.order.push_back(next);
    }
  }
  return found;
}

// The number of a rank's device among those of the topology.
Rank place_of(const Cluster& cluster, Rank rank) {
  return make_id<Rank>(cluster.device_of(rank));
}

}  // namespace

Way topology_way(const Topology& topology, Rank src, Rank dst) {
  const std::vector<std::int32_t> devices = topology.devices();
  const std::int32_t from = devices[src.index()], to = devices[dst.index()];
  const auto out = links_out(topology);
  bool through_devices = false;
  Distances found = distances_from(topology, out, from, through_devices);
  if (found.links[to] == kFar) {
    through_devices = true;
    found = distances_from(topology, out, from, through_devices);
  }
  WEFT_CHECK(found.links[to] != kFar);  // validate() demands that every device reaches every other
  const auto leads_on = [&](std::int32_t link) {
    const TopologyLink& l = topology.links[link];
    const bool may_pass = l.to == to || through_devices || topology.vertices[l.to].kind != VertexKind::device;
    return may_pass && found.links[l.to] == found.links[l.from] + 1 && found.links[l.to] <= found.links[to];
  };
  // What each vertex carries on to the end, nearest to the end first.
  std::vector<double> carries(topology.vertices.size(), 0);
  std::vector<Nanos> latency(topology.vertices.size());
  carries[to] = std::numeric_limits<double>::infinity();
  const auto through = [&](std::int32_t link) {
    return std::min(topology.links[link].bandwidth.bytes_per_second, carries[topology.links[link].to]);
  };
  for (auto at = found.order.rbegin(); at != found.order.rend(); ++at) {
    if (*at == to) continue;
    for (const std::int32_t link : out[*at]) {
      if (!leads_on(link) || through(link) == 0) continue;
      carries[*at] += through(link);
      latency[*at] = std::max(latency[*at], topology.links[link].latency + latency[topology.links[link].to]);
    }
  }
  Way way;
  way.latency = latency[from];
  std::vector<double> share(topology.vertices.size(), 0);
  share[from] = 1;
  for (const std::int32_t at : found.order) {
    if (share[at] == 0 || at == to) continue;
    for (const std::int32_t link : out[at]) {
      if (!leads_on(link) || through(link) == 0) continue;
      const double part = share[at] * through(link) / carries[at];
      way.links.push_back(link);
      way.shares.push_back(part);
      share[topology.links[link].to] += part;
    }
  }
  return way;
}

Bandwidth bandwidth_out_of(const Topology& topology, Rank rank) {
  const std::int32_t device = topology.devices()[rank.index()];
  Bandwidth sum{};
  for (const TopologyLink& link : topology.links) {
    if (link.from == device) sum.bytes_per_second += link.bandwidth.bytes_per_second;
  }
  return sum;
}

Topology between_ranks(const Topology& topology, const std::vector<Rank>& ranks) {
  const std::vector<std::int32_t> devices = topology.devices();
  Topology result;
  result.name = topology.name;
  std::vector<std::int32_t> place(topology.vertices.size(), -1);
  for (const Rank rank : ranks) place[devices[rank.index()]] = result.add(topology.vertices[devices[rank.index()]]);
  for (std::size_t v = 0; v < topology.vertices.size(); ++v) {
    if (topology.vertices[v].kind != VertexKind::device) place[v] = result.add(topology.vertices[v]);
  }
  for (const TopologyLink& link : topology.links) {
    if (place[link.from] < 0 || place[link.to] < 0) continue;
    result.links.push_back({place[link.from], place[link.to], link.bandwidth, link.latency});
  }
  drop_unconnected(result);
  return result;
}

Way wiring_way(const Cluster& cluster, Rank src, Rank dst) {
  return topology_way(*cluster.spec().topology, place_of(cluster, src), place_of(cluster, dst));
}

Bandwidth wiring_out_of(const Cluster& cluster, Rank rank) {
  return bandwidth_out_of(*cluster.spec().topology, place_of(cluster, rank));
}

Topology wiring_between(const Cluster& cluster, const std::vector<Rank>& ranks) {
  std::vector<Rank> places;
  places.reserve(ranks.size());
  for (const Rank rank : ranks) places.push_back(place_of(cluster, rank));
  return between_ranks(*cluster.spec().topology, places);
}

}  // namespace weft
