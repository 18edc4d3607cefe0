// Links, domains and paths against a walk over the devices in order.
#include "cluster/cluster.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"

namespace weft {
namespace {

Rank rank(std::int64_t n) {
  return make_id<Rank>(n);
}

LevelSpec level(std::string name, Domain joins, double gigabytes, std::int64_t shared_by,
                std::vector<std::string> via = {}) {
  return {.name = std::move(name),
          .joins = joins,
          .via = std::move(via),
          .bandwidth = {gigabytes * 1e9},
          .latency = {1'000},
          .duplex = Duplex::full,
          .shared_by = shared_by};
}

// nvlink in a node, nic (through pcie) in a leaf, one uplink for each leaf to the spine.
ClusterSpec leaf_and_spine(std::int64_t nodes, std::int64_t devices, std::int64_t nodes_per_leaf) {
  ClusterSpec spec;
  spec.name = "leaf-and-spine";
  spec.device = device_profile("a100-80");
  spec.nodes = nodes;
  spec.devices_per_node = devices;
  spec.nodes_per_leaf = nodes_per_leaf;
  spec.levels = {level("nvlink", Domain::node, 300, 1), level("pcie", Domain::none, 24, 2),
                 level("nic", Domain::leaf, 25, 2, {"pcie"}),
                 level("spine", Domain::cluster, 100, devices * nodes_per_leaf, {"pcie", "nic"})};
  return spec;
}

constexpr LevelId kNvlink{0}, kPcie{1}, kNic{2}, kSpine{3};

TEST(Cluster, DevicesTalkOverTheInnermostFabricThatHoldsBoth) {
  const Cluster cluster(leaf_and_spine(5, 4, 2));  // leaves: nodes 0-1, 2-3, 4
  ASSERT_EQ(cluster.device_count(), 20);
  EXPECT_EQ(cluster.fabrics(), (std::vector<LevelId>{kNvlink, kNic, kSpine}));
  for (int a = 0; a < 20; ++a) {
    for (int b = 0; b < 20; ++b) {
      const LevelId expected = a / 4 == b / 4 ? kNvlink : a / 8 == b / 8 ? kNic : kSpine;
      EXPECT_EQ(cluster.common_fabric(rank(a), rank(b)), expected) << a << " " << b;
    }
  }
}

// The oracle walks devices in order and opens a new link where the share is used up or the border is crossed.
TEST(Cluster, LinksAreSharedByConsecutiveDevicesAndCrossNoBorder) {
  for (const std::int64_t nodes : {1, 2, 3, 5}) {
    for (const std::int64_t devices : {1, 2, 3, 4, 8}) {
      for (const std::int64_t share : {1, 2, 3, 5}) {
        ClusterSpec spec = leaf_and_spine(nodes, devices, 2);
        spec.levels[2].shared_by = std::min(share, devices);
        spec.levels[1].shared_by = std::min<std::int64_t>(2, devices);
        const Cluster cluster(spec);
        std::set<LinkId> seen;
        for (const LevelId level : {kNvlink, kPcie, kNic, kSpine}) {
          const std::int64_t shared_by = spec.levels[level.index()].shared_by;
          const std::int64_t border = level == kSpine ? 2 * devices : devices;
          std::int64_t used = 0;
          LinkId current;
          for (std::int64_t device = 0; device < cluster.device_count(); ++device) {
            const LinkId link = cluster.link_of(level, rank(device));
            if (used == shared_by || device % border == 0) {
              EXPECT_TRUE(seen.insert(link).second) << "a new link was expected for device " << device;
              current = link;
              used = 0;
            }
            EXPECT_EQ(link, current);
            EXPECT_EQ(cluster.links()[link.index()].level, level);
            ++used;
          }
        }
        EXPECT_EQ(seen.size(), cluster.links().size()) << "every link serves a device";
      }
    }
  }
}

TEST(Cluster, ThePathCrossesTheHopsAndEndsAtTheFabric) {
  const Cluster cluster(leaf_and_spine(4, 4, 2));
  // Links: nvlink 0-15, pcie 16-23 (two devices each), nic 24-31, spine 32-33. Device 13: pair 6, second
  // leaf.
  EXPECT_EQ(cluster.path(kNvlink, rank(13)), (std::vector<LinkId>{{13}}));
  EXPECT_EQ(cluster.path(kNic, rank(13)), (std::vector<LinkId>{{22}, {30}}));
  EXPECT_EQ(cluster.path(kSpine, rank(13)), (std::vector<LinkId>{{22}, {30}, {33}}));
  EXPECT_EQ(cluster.links().size(), 34U);
}

TEST(Cluster, DomainsAreNodesLeavesAndTheWhole) {
  const Cluster cluster(leaf_and_spine(5, 4, 2));
  EXPECT_EQ(cluster.domain_of(kNvlink, rank(19)), 4);
  EXPECT_EQ(cluster.domain_of(kNic, rank(19)), 2);
  EXPECT_EQ(cluster.domain_of(kSpine, rank(19)), 0);
  EXPECT_EQ(cluster.node_of(rank(19)), NodeId{4});
}

TEST(Cluster, WithoutLeavesALeafIsTheWholeCluster) {
  ClusterSpec spec = leaf_and_spine(4, 4, 0);
  spec.levels.pop_back();
  const Cluster cluster(spec);
  EXPECT_EQ(cluster.common_fabric(rank(0), rank(15)), kNic);
  EXPECT_EQ(cluster.domain_of(kNic, rank(15)), 0);
}

TEST(Cluster, AnOverrideChangesTheLinksOfItsNodeOnly) {
  ClusterSpec spec = leaf_and_spine(4, 4, 2);
  NodeOverride slow;
  slow.node = 2;
  slow.level = "nic";
  slow.bandwidth = Bandwidth{12.5e9};
  NodeOverride late;
  late.node = 2;
  late.level = "nic";
  late.latency = Nanos{9'000};
  NodeOverride other_device;
  other_device.node = 1;
  other_device.device = device_profile("h100");
  spec.overrides = {slow, late, other_device};
  const Cluster cluster(spec);
  for (int device = 0; device < 16; ++device) {
    const bool changed = device / 4 == 2;
    const Link& nic = cluster.links()[cluster.link_of(kNic, rank(device)).index()];
    EXPECT_EQ(nic.bandwidth, (Bandwidth{changed ? 12.5e9 : 25e9}));
    EXPECT_EQ(nic.latency, (Nanos{changed ? 9'000 : 1'000}));
    const Link& pcie = cluster.links()[cluster.link_of(kPcie, rank(device)).index()];
    EXPECT_EQ(pcie.bandwidth, (Bandwidth{24e9}));
    EXPECT_EQ(cluster.device(rank(device)).name, device / 4 == 1 ? "h100" : "a100-80");
  }
}

TEST(Cluster, NamingOneNodeChangesTheLinkThatSeveralNodesShare) {
  ClusterSpec spec = leaf_and_spine(4, 4, 2);
  NodeOverride change;
  change.node = 3;
  change.level = "spine";
  change.bandwidth = Bandwidth{50e9};
  spec.overrides = {change};
  const Cluster cluster(spec);
  for (int device = 0; device < 16; ++device) {
    const Link& uplink = cluster.links()[cluster.link_of(kSpine, rank(device)).index()];
    EXPECT_EQ(uplink.bandwidth, (Bandwidth{device < 8 ? 100e9 : 50e9})) << device;
  }
}

TEST(Cluster, OneDeviceNeedsNoLinks) {
  ClusterSpec spec;
  spec.name = "one";
  spec.device = device_profile("cpu");
  const Cluster cluster(spec);
  EXPECT_EQ(cluster.device_count(), 1);
  EXPECT_TRUE(cluster.fabrics().empty());
  EXPECT_THROW(cluster.common_fabric(rank(0), rank(0)), Error);
}

}  // namespace
}  // namespace weft
