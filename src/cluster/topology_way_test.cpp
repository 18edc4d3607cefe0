#include "cluster/topology_way.hpp"

#include <gtest/gtest.h>

#include "cluster/flow_network.hpp"
#include "cluster/presets.hpp"
#include "cluster/topology_presets.hpp"

namespace weft {
namespace {

// Two devices and two switches between them, of 1 and 3 GB/s.
Topology two_switches() {
  Topology t;
  t.name = "two switches";
  const auto a = t.add({.name = "a", .node = 0}), b = t.add({.name = "b", .node = 0});
  const auto thin = t.add({.name = "thin", .kind = VertexKind::network_switch});
  const auto wide = t.add({.name = "wide", .kind = VertexKind::network_switch});
  for (const auto device : {a, b}) {
    t.connect(device, thin, Bandwidth{1e9}, Nanos{100});
    t.connect(device, wide, Bandwidth{3e9}, Nanos{300});
  }
  return t;
}

TEST(TopologyWay, SpreadsOverSwitchesByWhatTheyCarry) {
  const Topology t = two_switches();
  const Way way = topology_way(t, Rank{0}, Rank{1});
  ASSERT_EQ(way.links.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const bool thin = t.links[way.links[i]].bandwidth.bytes_per_second == 1e9;
    EXPECT_DOUBLE_EQ(way.shares[i], thin ? 0.25 : 0.75);
  }
  EXPECT_EQ(way.latency, Nanos{600});  // until the last share is there
}

// 4 MB over both switches at once: 1 ms and the latency.
TEST(TopologyWay, NetworksOfAClusterWithATopologyFollowIt) {
  ClusterSpec spec = parse_cluster("local:2,nic=100Gb/s");
  spec.topology = SharedTopology(two_switches());
  const Cluster cluster(spec);
  FlowNetwork network(cluster);
  const std::int32_t connection = network.open_connection(Rank{0}, Rank{1});
  const std::int32_t flow = network.start(connection, Bytes{4'000'000}, Nanos{0});
  const auto end = network.ended(flow, Nanos{2'000'000});
  ASSERT_TRUE(end.has_value());
  EXPECT_NEAR(static_cast<double>(end->value), 1'000'600, 2);
}

// A line of three devices, 1 GB/s from the first to the second and 4 GB/s to the third. 4 MB between ranks 0 and 1 take
// 4 ms in rank order, 1 ms where they are on the last two devices, and the slow link's time where they are on the ends.
TEST(TopologyWay, StartsAtTheDeviceThatAMapPutsARankOn) {
  Topology line{"line", {}, {}};
  for (const char* name : {"a", "b", "c"}) line.add({.name = name, .node = 0});
  line.connect(0, 1, Bandwidth{1e9}, Nanos{100});
  line.connect(1, 2, Bandwidth{4e9}, Nanos{100});
  ClusterSpec spec = parse_cluster("local:3,nic=100Gb/s");
  spec.topology = SharedTopology(line);
  struct Case {
    std::vector<std::int64_t> map;
    double nanoseconds;
  };
  for (const Case& c : {Case{{}, 4'000'100}, Case{{1, 2, 0}, 1'000'100}, Case{{2, 0, 1}, 4'000'200}}) {
    spec.device_map = c.map;
    const Cluster cluster(spec);
    FlowNetwork network(cluster);
    const std::int32_t connection = network.open_connection(Rank{0}, Rank{1});
    const std::int32_t flow = network.start(connection, Bytes{4'000'000}, Nanos{0});
    const auto end = network.ended(flow, Nanos{20'000'000});
    ASSERT_TRUE(end.has_value());
    EXPECT_NEAR(static_cast<double>(end->value), c.nanoseconds, 2);
    const Topology between = wiring_between(cluster, {Rank{0}, Rank{1}, Rank{2}});
    for (std::int32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(between.vertices[rank].name, line.vertices[cluster.device_of(Rank{rank})].name);
      EXPECT_EQ(wiring_out_of(cluster, Rank{rank}).bytes_per_second,
                bandwidth_out_of(line, make_id<Rank>(cluster.device_of(Rank{rank}))).bytes_per_second);
    }
  }
}

// In a cube mesh GPUs 0 and 5 have no NVLink: one of the others passes it on, over two links.
TEST(TopologyWay, DevicesPassOnOnlyWhereNothingElseDoes) {
  const Topology t = parse_topology("dgx1-v100");
  for (std::int32_t to = 1; to < 8; ++to) {
    const Way way = topology_way(t, Rank{0}, Rank{to});
    const bool direct = way.links.size() == 1;
    double arriving = 0;
    for (std::size_t i = 0; i < way.links.size(); ++i) {
      if (t.links[way.links[i]].to == t.devices()[to]) arriving += way.shares[i];
    }
    EXPECT_NEAR(arriving, 1, 1e-12);
    const bool wired = std::any_of(t.links.begin(), t.links.end(), [&](const TopologyLink& l) {
      return l.from == t.devices()[0] && l.to == t.devices()[to];
    });
    EXPECT_EQ(direct, wired) << "to rank " << to;
  }
}

TEST(TopologyWay, AClusterMustHaveAsManyDevices) {
  ClusterSpec spec = parse_cluster("local:3,nic=100Gb/s");
  spec.topology = SharedTopology(two_switches());
  EXPECT_THROW(Cluster{spec}, std::runtime_error);
}

TEST(TopologyWay, AGroupHasTheWiringBetweenItsRanks) {
  const Topology pair = between_ranks(parse_topology("dgx1-v100"), {Rank{3}, Rank{0}});
  ASSERT_EQ(pair.devices().size(), 2u);
  EXPECT_EQ(pair.vertices[pair.devices()[0]].name, parse_topology("dgx1-v100").vertices[3].name);
  EXPECT_EQ(pair.links.size(), 2u);
  EXPECT_FALSE(joins_all_devices(between_ranks(parse_topology("dgx1-v100"), {Rank{0}, Rank{5}})));
}

}  // namespace
}  // namespace weft
