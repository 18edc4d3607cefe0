#include "cluster/topology.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "cluster/topology_cuts.hpp"
#include "cluster/topology_presets.hpp"

namespace weft {
namespace {

double out_of(const Topology& topology, std::int32_t vertex) {
  double sum = 0;
  for (const TopologyLink& link : topology.links) {
    if (link.from == vertex) sum += link.bandwidth.bytes_per_second;
  }
  return sum;
}

std::string message_of(const Topology& topology) {
  try {
    validate(topology);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Topology pair_of_devices() {
  Topology topology{"pair", {}, {}};
  topology.add({"a"});
  topology.add({"b"});
  topology.connect(0, 1, {1e9}, {1000});
  return topology;
}

TEST(TopologyPresets, HaveTheLinksThatADeviceIsSoldWith) {
  // Links times bandwidth per direction: 6 x 25, 6 x 25, 12 x 25, 18 x 25 and 18 x 50 GB/s.
  for (const auto& [name, devices, bandwidth] :
       {std::tuple{"dgx1-v100", 8, 150e9}, std::tuple{"dgx2", 16, 150e9}, std::tuple{"dgx-a100", 8, 300e9},
        std::tuple{"dgx-h100", 8, 450e9}, std::tuple{"gb200-nvl72", 72, 900e9}}) {
    const Topology topology = parse_topology(name);
    EXPECT_EQ(topology.devices().size(), static_cast<std::size_t>(devices)) << name;
    for (const std::int32_t device : topology.devices()) EXPECT_DOUBLE_EQ(out_of(topology, device), bandwidth) << name;
  }
}

TEST(TopologyPresets, NodesAreJoinedByTheirNics) {
  // Eight adapters of 25 GB/s are all that leaves a node.
  EXPECT_DOUBLE_EQ(slowest_bisection(parse_topology("dgx-a100:2")).bandwidth.bytes_per_second, 200e9);
  // Four adapters, each behind a PCIe switch of 12 GB/s.
  EXPECT_DOUBLE_EQ(slowest_bisection(parse_topology("dgx1-v100:2")).bandwidth.bytes_per_second, 48e9);
}

TEST(TopologyPresets, RefuseOtherNamesAndNumbers) {
  EXPECT_THROW(parse_topology("dgx3"), Error);
  EXPECT_THROW(parse_topology("dgx2:0"), Error);
  EXPECT_THROW(parse_topology("dgx2:x"), Error);
  EXPECT_FALSE(is_topology_preset("local:4"));
  EXPECT_TRUE(is_topology_preset("mi250:2"));
}

TEST(Topology, SaysWhatIsWrongWithIt) {
  EXPECT_EQ(message_of(pair_of_devices()), "");
  Topology alone = pair_of_devices();
  alone.add({"c"});
  EXPECT_EQ(message_of(alone), "topology 'pair': no links lead from 'a' to 'c'");
  Topology one_way = pair_of_devices();
  one_way.links.pop_back();
  EXPECT_EQ(message_of(one_way), "topology 'pair': no links lead from 'b' to 'a'");
  Topology twice = pair_of_devices();
  twice.vertices[1].name = "a";
  EXPECT_EQ(message_of(twice), "topology 'pair': vertex 'a': the name is given twice");
  Topology slow = pair_of_devices();
  slow.links[0].bandwidth = {0};
  EXPECT_NE(message_of(slow).find("link from 'a' to 'b': bandwidth 0 is not in"), std::string::npos);
}

TEST(Topology, ParallelLinksAddUp) {
  Topology topology = pair_of_devices();
  topology.connect(1, 0, {2e9}, {1000});
  EXPECT_EQ(topology.links.size(), 2u);
  EXPECT_DOUBLE_EQ(out_of(topology, 0), 3e9);
}

TEST(Topology, LevelsAreAGraphWithASwitchForEveryDomain) {
  const Topology topology = topology_of(Cluster(parse_cluster("local:4,nic=200Mb/s")));
  EXPECT_EQ(topology.devices().size(), 4u);
  for (const std::int32_t device : topology.devices()) EXPECT_DOUBLE_EQ(out_of(topology, device), 25e6);
  // A device receives three pieces over one link of 25 MB/s.
  EXPECT_DOUBLE_EQ(gather_bandwidth(slowest_gather_cut(topology), 4).bytes_per_second, 4 * 25e6 / 3);
}

TEST(Topology, ASharedNicCarriesItsBandwidthOnce) {
  // p3dn: one adapter of 100 Gb/s for the eight devices of a node, behind PCIe of 12 GB/s that two of them share.
  const Topology topology = topology_of(Cluster(parse_cluster("p3dn:2")));
  EXPECT_DOUBLE_EQ(slowest_bisection(topology).bandwidth.bytes_per_second, 12.5e9);
}

}  // namespace
}  // namespace weft
