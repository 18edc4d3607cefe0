// Canonical maps and the search against all permutations of small clusters.
#include "cluster/device_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "base/error.hpp"

namespace weft {
namespace {

ClusterSpec cluster_of(std::int64_t nodes, std::int64_t devices, std::int64_t nic_shared_by = 1) {
  ClusterSpec spec;
  spec.name = "test";
  spec.device = device_profile("cpu");
  spec.nodes = nodes;
  spec.devices_per_node = devices;
  spec.levels = {{.name = "bus", .joins = Domain::node, .via = {}, .bandwidth = {1e10}, .latency = {1'000}},
                 {.name = "nic",
                  .joins = Domain::cluster,
                  .via = {},
                  .bandwidth = {1e9},
                  .latency = {5'000},
                  .duplex = Duplex::full,
                  .shared_by = nic_shared_by}};
  return spec;
}

ClusterSpec in_pairs(ClusterSpec spec) {
  spec.levels.insert(
      spec.levels.begin(),
      {.name = "bridge", .joins = Domain::part, .part = 2, .via = {}, .bandwidth = {2e10}, .latency = {1'000}});
  return spec;
}

ClusterSpec with_slow_nic(ClusterSpec spec, std::int64_t node, double bandwidth = 2e8) {
  spec.overrides.push_back(
      {.node = node, .level = "nic", .bandwidth = Bandwidth{bandwidth}, .latency = {}, .device = {}});
  return spec;
}

std::vector<DeviceMap> all_maps(std::int64_t devices) {
  DeviceMap map(static_cast<std::size_t>(devices));
  std::iota(map.begin(), map.end(), 0);
  std::vector<DeviceMap> all;
  do all.push_back(map);
  while (std::next_permutation(map.begin(), map.end()));
  return all;
}

// All that a step could notice of a map: for every two ranks the level that joins them, and whose links they share.
using Notice = std::vector<double>;
Notice noticed(ClusterSpec spec, const DeviceMap& map) {
  spec.device_map = map;
  const Cluster cluster(spec);
  Notice notice;
  for (std::int32_t a = 0; a < cluster.device_count(); ++a) {
    for (std::int32_t b = 0; b < a; ++b) notice.push_back(cluster.common_fabric(Rank{a}, Rank{b}).value);
    for (std::size_t level = 0; level < cluster.level_count(); ++level) {
      const LinkId own = cluster.link_of(make_id<LevelId>(level), Rank{a});
      notice.push_back(cluster.links()[own.index()].bandwidth.bytes_per_second);
      for (std::int32_t b = 0; b < cluster.device_count(); ++b) {
        notice.push_back(cluster.link_of(make_id<LevelId>(level), Rank{b}) == own ? 1 : 0);
        notice.push_back(cluster.node_of(Rank{a}) == cluster.node_of(Rank{b}) ? 1 : 0);
      }
    }
  }
  return notice;
}

std::vector<ClusterSpec> small_clusters() {
  return {cluster_of(4, 1),
          with_slow_nic(cluster_of(4, 1), 2),
          with_slow_nic(with_slow_nic(cluster_of(5, 1), 1), 3, 4e8),
          cluster_of(2, 3),
          cluster_of(1, 4, 2),
          cluster_of(1, 6, 2),
          in_pairs(cluster_of(1, 4)),
          in_pairs(cluster_of(1, 6)),
          in_pairs(cluster_of(1, 4, 4)),
          in_pairs(cluster_of(1, 6, 2)),
          with_slow_nic(cluster_of(3, 2), 0)};
}

TEST(DeviceKinds, TellMapsApartExactlyWhereLinksDo) {
  for (const ClusterSpec& spec : small_clusters()) {
    const DeviceKinds kinds(spec);
    std::map<Notice, std::set<DeviceMap>> canonical_of;
    for (const DeviceMap& map : all_maps(spec.nodes * spec.devices_per_node)) {
      canonical_of[noticed(spec, map)].insert(kinds.canonical(map));
    }
    std::set<DeviceMap> canonical;
    for (const auto& [notice, maps] : canonical_of) {
      EXPECT_EQ(maps.size(), 1) << spec.nodes << " nodes of " << spec.devices_per_node;
      canonical.insert(maps.begin(), maps.end());
    }
    EXPECT_EQ(canonical.size(), canonical_of.size());
    std::set<DeviceMap> visited;
    EXPECT_TRUE(kinds.for_each([&](const DeviceMap& map) { return visited.insert(map).second; }));
    EXPECT_EQ(visited, canonical);
    EXPECT_EQ(kinds.count(1'000'000), std::ssize(canonical));
  }
}

TEST(DeviceKinds, CountsNoFurtherThanItIsAsked) {
  EXPECT_EQ(DeviceKinds(with_slow_nic(cluster_of(8, 1), 3)).count(100), 8);
  EXPECT_EQ(DeviceKinds(cluster_of(4, 8)).count(100), 101);
}

// A cost with an optimum somewhere: messages between neighbours in rank order, of random sizes.
double messages_cost(ClusterSpec spec, const DeviceMap& map, const std::vector<double>& bytes) {
  spec.device_map = map;
  const Cluster cluster(spec);
  double most = 0;
  std::map<std::int32_t, double> busy;
  for (std::int32_t a = 0; a + 1 < cluster.device_count(); ++a) {
    const LevelId fabric = cluster.common_fabric(Rank{a}, Rank{a + 1});
    for (const std::int32_t end : {a, a + 1}) {
      for (const LinkId link : cluster.path(fabric, Rank{end})) {
        busy[link.value] +=
            bytes[static_cast<std::size_t>(a)] / cluster.links()[link.index()].bandwidth.bytes_per_second;
        most = std::max(most, busy[link.value]);
      }
    }
  }
  return most;
}

TEST(DeviceMapSearch, FindsTheBestOfAllPermutationsOfUpToEightDevices) {
  std::mt19937 random(7);
  std::vector<ClusterSpec> specs = small_clusters();
  specs.push_back(with_slow_nic(cluster_of(8, 1), 3));
  specs.push_back(with_slow_nic(cluster_of(4, 2, 2), 1));
  for (const ClusterSpec& spec : specs) {
    const std::int64_t devices = spec.nodes * spec.devices_per_node;
    std::vector<double> bytes;
    for (std::int64_t i = 0; i < devices; ++i) bytes.push_back(1.0 + static_cast<double>(random() % 100));
    const auto cost = [&](const DeviceMap& map) { return messages_cost(spec, map, bytes); };
    double least = INFINITY;
    for (const DeviceMap& map : all_maps(devices)) least = std::min(least, cost(map));
    const DeviceMapSearch found = search_device_map(spec, cost, 5'000);
    EXPECT_TRUE(found.all_tried);
    EXPECT_EQ(found.seconds, least);
    EXPECT_EQ(cost(found.best), least);
    DeviceMap in_order(static_cast<std::size_t>(devices));
    std::iota(in_order.begin(), in_order.end(), 0);
    EXPECT_EQ(found.in_rank_order, cost(in_order));
  }
}

TEST(DeviceMapSearch, ImprovesWhereItCannotTryAll) {
  std::mt19937 random(11);
  ClusterSpec spec = cluster_of(7, 1);
  for (std::int64_t node = 0; node < 7; ++node) spec = with_slow_nic(spec, node, 1e8 * static_cast<double>(node + 1));
  int optimal = 0;
  for (int round = 0; round < 8; ++round) {
    std::vector<double> bytes;
    for (int i = 0; i < 7; ++i) bytes.push_back(1.0 + static_cast<double>(random() % 100));
    const auto cost = [&](const DeviceMap& map) { return messages_cost(spec, map, bytes); };
    double least = INFINITY;
    for (const DeviceMap& map : all_maps(7)) least = std::min(least, cost(map));
    const DeviceMapSearch found = search_device_map(spec, cost, 300);
    EXPECT_FALSE(found.all_tried);
    EXPECT_LE(found.tried, 300);
    EXPECT_LE(found.seconds, found.in_rank_order);
    if (found.seconds < 1.02 * least) ++optimal;
  }
  EXPECT_GE(optimal, 6);
}

TEST(DeviceMap, MovesRanksToTheirDevices) {
  ClusterSpec spec = with_slow_nic(cluster_of(2, 2), 1);
  spec.device_map = {3, 0, 1, 2};
  const Cluster cluster(spec);
  EXPECT_EQ(cluster.node_of(Rank{0}), NodeId{1});
  EXPECT_EQ(cluster.node_of(Rank{1}), NodeId{0});
  EXPECT_EQ(cluster.node_of(Rank{2}), NodeId{0});
  EXPECT_EQ(cluster.links()[cluster.link_of(LevelId{1}, Rank{0}).index()].bandwidth.bytes_per_second, 2e8);
  EXPECT_EQ(cluster.links()[cluster.link_of(LevelId{1}, Rank{1}).index()].bandwidth.bytes_per_second, 1e9);
  EXPECT_EQ(cluster.common_fabric(Rank{0}, Rank{3}), LevelId{0});
  EXPECT_EQ(cluster.common_fabric(Rank{0}, Rank{1}), LevelId{1});
}

TEST(DeviceMap, IsRefusedUnlessItHasEveryDeviceOnce) {
  for (const DeviceMap& map :
       {DeviceMap{0, 1, 2}, DeviceMap{0, 1, 2, 2}, DeviceMap{0, 1, 2, 4}, DeviceMap{-1, 1, 2, 3}}) {
    ClusterSpec spec = cluster_of(4, 1);
    spec.device_map = map;
    EXPECT_THROW(Cluster{spec}, Error);
  }
}

}  // namespace
}  // namespace weft
