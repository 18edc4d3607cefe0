// Maps that symmetries make equal, against all permutations of all vertices of small topologies.
#include "cluster/device_symmetry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "cluster/device_map.hpp"
#include "cluster/topology.hpp"

namespace weft {
namespace {

constexpr Nanos kHop{1'000};

ClusterSpec cluster_on_wires(Topology topology) {
  ClusterSpec spec;
  spec.name = "wired";
  spec.device = device_profile("cpu");
  spec.nodes = std::ssize(topology.devices());
  spec.devices_per_node = 1;
  spec.levels = {
      {.name = "nic", .joins = Domain::cluster, .via = {}, .bandwidth = Bandwidth{1e9}, .latency = Nanos{5'000}}};
  spec.topology = SharedTopology(std::move(topology));
  return spec;
}

Topology devices_alone(int count) {
  Topology topology{"t", {}, {}};
  for (int i = 0; i < count; ++i) topology.add({"d" + std::to_string(i), VertexKind::device, i});
  return topology;
}

Topology ring(int count, double last_rate) {
  Topology topology = devices_alone(count);
  for (int i = 0; i < count; ++i) {
    topology.connect(i, (i + 1) % count, {i + 1 == count ? last_rate : 1e9}, kHop);
  }
  return topology;
}

// Two devices at each of two cards, which meet at a switch.
Topology two_cards(double second_rate) {
  Topology topology = devices_alone(4);
  const std::int32_t a = topology.add({"a", VertexKind::nic, 0}), b = topology.add({"b", VertexKind::nic, 0});
  const std::int32_t hub = topology.add({"hub", VertexKind::network_switch});
  for (const std::int32_t d : {0, 2}) topology.connect(d, a, {1e9}, kHop);
  for (const std::int32_t d : {1, 3}) topology.connect(d, b, {1e9}, kHop);
  topology.connect(a, hub, {1e9}, kHop);
  topology.connect(b, hub, {second_rate}, kHop);
  return topology;
}

Topology one_way_ring(int count) {
  Topology topology = devices_alone(count);
  for (int i = 0; i < count; ++i) topology.connect_one_way(i, (i + 1) % count, {1e9}, kHop);
  return topology;
}

std::vector<ClusterSpec> wired_clusters() {
  std::vector<ClusterSpec> specs;
  for (const Topology& topology : {ring(4, 1e9), ring(5, 1e9), ring(4, 5e8), ring(4, 2e9), one_way_ring(4),
                                   two_cards(1e9), two_cards(5e8), one_way_ring(5)}) {
    specs.push_back(cluster_on_wires(topology));
  }
  // Levels tell devices apart that links do not.
  specs.push_back(cluster_on_wires(ring(4, 1e9)));
  specs.back().overrides = {{.node = 2, .level = "nic", .bandwidth = Bandwidth{1e8}, .latency = {}, .device = {}}};
  specs.push_back(cluster_on_wires(two_cards(1e9)));
  specs.back().nodes = 2;
  specs.back().devices_per_node = 2;
  std::mt19937 random(3);
  for (int i = 0; i < 6; ++i) {
    Topology topology = ring(5, 1e9);
    for (int more = 0; more < 2; ++more) {
      const auto a = static_cast<std::int32_t>(random() % 5), b = static_cast<std::int32_t>(random() % 5);
      if (a != b) topology.connect(a, b, {1e9}, kHop);
    }
    specs.push_back(cluster_on_wires(topology));
  }
  return specs;
}

using LinkFacts = std::tuple<std::int32_t, std::int32_t, double, std::int64_t>;
std::set<LinkFacts> links_when(const Topology& topology, const std::vector<std::int32_t>& moved_to) {
  std::set<LinkFacts> links;
  for (const TopologyLink& link : topology.links) {
    links.insert({moved_to[link.from], moved_to[link.to], link.bandwidth.bytes_per_second, link.latency.value});
  }
  return links;
}

// What levels show of devices in this order: rates of their links, and who shares a node.
std::vector<double> levels_shown(ClusterSpec spec, const std::vector<std::int32_t>& order) {
  spec.device_map.assign(order.begin(), order.begin() + spec.nodes * spec.devices_per_node);
  const Cluster cluster(spec);
  std::vector<double> shown;
  for (std::int32_t a = 0; a < cluster.device_count(); ++a) {
    shown.push_back(cluster.links()[cluster.link_of(LevelId{0}, Rank{a}).index()].bandwidth.bytes_per_second);
    for (std::int32_t b = 0; b < a; ++b) shown.push_back(cluster.node_of(Rank{a}) == cluster.node_of(Rank{b}) ? 1 : 0);
  }
  return shown;
}

// Where devices go in every permutation of all vertices that leaves links, kinds and levels as they are.
std::set<DeviceMap> all_symmetries(const ClusterSpec& spec) {
  const Topology& topology = *spec.topology;
  std::vector<std::int32_t> order(topology.vertices.size());
  std::iota(order.begin(), order.end(), 0);
  const std::set<LinkFacts> links = links_when(topology, order);
  const std::vector<double> levels = levels_shown(spec, order);
  std::set<DeviceMap> found;
  do {
    bool same = true;
    for (std::size_t v = 0; v < order.size(); ++v) {
      same = same && topology.vertices[v].kind == topology.vertices[order[v]].kind;
    }
    if (!same || links_when(topology, order) != links || levels_shown(spec, order) != levels) continue;
    found.insert(DeviceMap(order.begin(), order.begin() + std::ssize(topology.devices())));
  } while (std::next_permutation(order.begin(), order.end()));
  return found;
}

TEST(DeviceSymmetry, MakesMapsEqualExactlyWhereAllVerticesCanMove) {
  int with_symmetry = 0;
  for (const ClusterSpec& spec : wired_clusters()) {
    const std::set<DeviceMap> symmetries = all_symmetries(spec);
    with_symmetry += symmetries.size() > 1 ? 1 : 0;
    const DeviceKinds kinds(spec);
    DeviceMap map(static_cast<std::size_t>(spec.nodes * spec.devices_per_node));
    std::iota(map.begin(), map.end(), 0);
    std::set<DeviceMap> canonical;
    std::int64_t maps = 0;
    do {
      ++maps;
      const DeviceMap own = kinds.canonical(map);
      canonical.insert(own);
      for (const DeviceMap& symmetry : symmetries) {
        DeviceMap moved;
        for (const std::int64_t device : map) moved.push_back(symmetry[static_cast<std::size_t>(device)]);
        EXPECT_EQ(kinds.canonical(moved), own);
      }
    } while (std::next_permutation(map.begin(), map.end()));
    // No symmetry but the one that moves nothing leaves a map as it is, so all classes are of one size.
    EXPECT_EQ(std::ssize(canonical) * std::ssize(symmetries), maps);
    EXPECT_EQ(kinds.count(1'000), std::ssize(canonical));
    std::set<DeviceMap> visited;
    kinds.for_each([&](const DeviceMap& seen) { return visited.insert(seen).second; });
    EXPECT_EQ(visited, canonical);
  }
  EXPECT_GE(with_symmetry, 8);
}

TEST(DeviceSymmetry, LeavesOneMapOfDevicesAtOneSwitch) {
  Topology topology = devices_alone(8);
  for (int s = 0; s < 6; ++s) {
    const std::int32_t hub = topology.add({"s" + std::to_string(s), VertexKind::network_switch});
    for (std::int32_t d = 0; d < 8; ++d) topology.connect(d, hub, {50e9}, kHop);
  }
  ClusterSpec spec = cluster_on_wires(topology);
  EXPECT_EQ(DeviceKinds(spec).count(512), 1);
  spec.overrides = {{.node = 5, .level = "nic", .bandwidth = Bandwidth{1e8}, .latency = {}, .device = {}}};
  EXPECT_EQ(DeviceKinds(spec).count(512), 8);
}

}  // namespace
}  // namespace weft
