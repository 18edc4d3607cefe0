#include "cluster/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/enum_name.hpp"
#include "base/error.hpp"

namespace weft {

SharedTopology::SharedTopology(Topology topology) : topology_(std::make_shared<const Topology>(std::move(topology))) {}

bool operator==(const SharedTopology& a, const SharedTopology& b) {
  return a.topology_ == b.topology_ || (a.topology_ && b.topology_ && *a.topology_ == *b.topology_);
}
namespace {

// Returns which vertices a vertex reaches, over links taken forwards or backwards.
std::vector<bool> reached_from(const Topology& topology, std::int32_t start, bool forwards) {
  std::vector<std::vector<std::int32_t>> next(topology.vertices.size());
  for (const TopologyLink& link : topology.links) {
    next[forwards ? link.from : link.to].push_back(forwards ? link.to : link.from);
  }
  std::vector<bool> reached(topology.vertices.size(), false);
  reached[start] = true;
  std::vector<std::int32_t> open{start};
  while (!open.empty()) {
    const std::int32_t vertex = open.back();
    open.pop_back();
    for (const std::int32_t other : next[vertex]) {
      if (reached[other]) continue;
      reached[other] = true;
      open.push_back(other);
    }
  }
  return reached;
}

void check_vertices(const Topology& topology) {
  std::set<std::string> names;
  for (const TopologyVertex& vertex : topology.vertices) {
    if (vertex.name.empty()) fail("topology '{}': a vertex has no name", topology.name);
    if (!names.insert(vertex.name).second) {
      fail("topology '{}': vertex '{}': the name is given twice", topology.name, vertex.name);
    }
  }
}

void check_links(const Topology& topology) {
  for (const TopologyLink& link : topology.links) {
    const std::string& from = topology.vertices[link.from].name;
    const std::string& to = topology.vertices[link.to].name;
    if (link.from == link.to) fail("topology '{}': vertex '{}': a link leads to itself", topology.name, from);
    const double rate = link.bandwidth.bytes_per_second;
    if (!(rate >= kBandwidthUnit && rate <= kMaxLinkBandwidth)) {
      fail("topology '{}': link from '{}' to '{}': bandwidth {} is not in {}..{} bytes a second", topology.name, from,
           to, rate, kBandwidthUnit, kMaxLinkBandwidth);
    }
  }
}

void check_reach(const Topology& topology, const std::vector<std::int32_t>& devices) {
  for (const bool forwards : {true, false}) {
    const std::vector<bool> reached = reached_from(topology, devices.front(), forwards);
    for (const std::int32_t device : devices) {
      if (reached[device]) continue;
      const std::string& first = topology.vertices[devices.front()].name;
      const std::string& other = topology.vertices[device].name;
      fail("topology '{}': no links lead from '{}' to '{}'", topology.name, forwards ? first : other,
           forwards ? other : first);
    }
  }
}

}  // namespace

std::string_view name_of(VertexKind kind) {
  static constexpr std::string_view kNames[] = {"device", "nic", "switch", "host"};
  return enum_name(kNames, kind);
}

std::int32_t Topology::add(TopologyVertex vertex) {
  vertices.push_back(std::move(vertex));
  return static_cast<std::int32_t>(vertices.size()) - 1;
}

void Topology::connect(std::int32_t a, std::int32_t b, Bandwidth bandwidth, Nanos latency) {
  connect_one_way(a, b, bandwidth, latency);
  connect_one_way(b, a, bandwidth, latency);
}

void Topology::connect_one_way(std::int32_t from, std::int32_t to, Bandwidth bandwidth, Nanos latency) {
  const auto found =
      std::ranges::find_if(links, [&](const TopologyLink& link) { return link.from == from && link.to == to; });
  if (found != links.end()) {
    found->bandwidth.bytes_per_second += bandwidth.bytes_per_second;
    return;
  }
  links.push_back({from, to, bandwidth, latency});
}

std::vector<std::int32_t> Topology::devices() const {
  std::vector<std::int32_t> found;
  for (std::size_t i = 0; i < vertices.size(); ++i) {
    if (vertices[i].kind == VertexKind::device) found.push_back(static_cast<std::int32_t>(i));
  }
  return found;
}

std::int64_t bandwidth_units(Bandwidth bandwidth) {
  return std::llround(bandwidth.bytes_per_second / kBandwidthUnit);
}

bool joins_all_devices(const Topology& topology) {
  const std::vector<std::int32_t> devices = topology.devices();
  for (const bool forwards : {true, false}) {
    const std::vector<bool> reached = reached_from(topology, devices.front(), forwards);
    if (!std::ranges::all_of(devices, [&](std::int32_t device) { return reached[device]; })) return false;
  }
  return true;
}

void drop_unconnected(Topology& topology) {
  std::vector<bool> used(topology.vertices.size(), false);
  for (const TopologyLink& link : topology.links) used[link.from] = used[link.to] = true;
  std::vector<std::int32_t> number(topology.vertices.size(), -1);
  std::vector<TopologyVertex> kept;
  for (std::size_t i = 0; i < topology.vertices.size(); ++i) {
    if (!used[i] && topology.vertices[i].kind != VertexKind::device) continue;
    number[i] = static_cast<std::int32_t>(kept.size());
    kept.push_back(topology.vertices[i]);
  }
  topology.vertices = std::move(kept);
  for (TopologyLink& link : topology.links) {
    link.from = number[link.from];
    link.to = number[link.to];
  }
}

void validate(const Topology& topology) {
  if (topology.vertices.size() > kMaxTopologyVertices) {
    fail("topology '{}': {} vertices are more than {}", topology.name, topology.vertices.size(), kMaxTopologyVertices);
  }
  const std::vector<std::int32_t> devices = topology.devices();
  if (devices.size() < 2 || devices.size() > kMaxTopologyDevices) {
    fail("topology '{}': the number of devices, {}, is not in 2..{}", topology.name, devices.size(),
         kMaxTopologyDevices);
  }
  check_vertices(topology);
  check_links(topology);
  check_reach(topology, devices);
}

Topology topology_of(const Cluster& cluster) {
  Topology topology{cluster.spec().name, {}, {}};
  for (const LevelSpec& level : cluster.spec().levels) {
    if (level.duplex == Duplex::half) {
      fail("cluster '{}': level '{}' is half duplex, which a topology cannot say", topology.name, level.name);
    }
  }
  const std::int64_t count = cluster.device_count();
  if (count > static_cast<std::int64_t>(kMaxTopologyDevices)) {
    fail("cluster '{}': {} devices are more than {}", topology.name, count, kMaxTopologyDevices);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    topology.add({fmt::format("device{}", i), VertexKind::device, cluster.node_of(make_id<Rank>(i)).value});
  }
  std::map<LinkId, std::int32_t> ends;  // the outer end of a link
  std::set<std::pair<std::int32_t, std::int32_t>> joined;
  std::map<std::pair<LevelId, std::int64_t>, std::int32_t> domains;
  const auto join = [&](std::int32_t a, std::int32_t b, const Link& link) {
    if (joined.insert({a, b}).second) topology.connect(a, b, link.bandwidth, link.latency);
  };
  for (const LevelId fabric : cluster.fabrics()) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto rank = make_id<Rank>(i);
      auto at = static_cast<std::int32_t>(i);
      const Link* last = nullptr;
      for (const LinkId id : cluster.path(fabric, rank)) {
        const Link& link = cluster.links()[id.index()];
        const auto [end, is_new] = ends.try_emplace(id, -1);
        if (is_new) {
          const std::string name = fmt::format("{}{}", cluster.level_name(link.level), id.value);
          end->second = topology.add({name, VertexKind::nic, cluster.node_of(rank).value});
        }
        join(at, end->second, last != nullptr ? *last : link);
        at = end->second;
        last = &link;
      }
      const std::int64_t domain = cluster.domain_of(fabric, rank);
      const auto [hub, is_new] = domains.try_emplace({fabric, domain}, -1);
      if (is_new) {
        hub->second =
            topology.add({fmt::format("{}-switch{}", cluster.level_name(fabric), domain), VertexKind::network_switch});
      }
      join(at, hub->second, *last);
    }
  }
  validate(topology);
  return topology;
}

}  // namespace weft
