#include "graph/rank_classes.hpp"

#include <gtest/gtest.h>

#include <set>

#include "graph/test_graphs.hpp"

namespace weft {
namespace {

RankClasses classes_of(const Cluster& cluster, const Layout& layout, bool experts = false) {
  return find_rank_classes(cluster, test::filled(layout, cluster.device_count()), {.experts = experts});
}

RankClasses classes_of(std::string_view cluster, const Layout& layout, bool experts = false) {
  return classes_of(Cluster(parse_cluster(cluster)), layout, experts);
}

std::size_t level(const Cluster& cluster, std::string_view name) {
  std::size_t i = 0;
  while (cluster.level_name(make_id<LevelId>(i)) != name) ++i;
  return i;
}

TEST(RankClasses, OnePerPipelineStageOnAHomogeneousCluster) {
  for (const std::int64_t pp : {1, 2, 4}) {
    const RankClasses found = classes_of("dgx-a100:8", {.tp = 8, .pp = pp, .vpp = pp > 1 ? 2 : 1});
    ASSERT_EQ(found.classes.size(), static_cast<std::size_t>(pp));
    for (std::size_t c = 0; c < found.classes.size(); ++c) {
      EXPECT_EQ(found.classes[c].stage, static_cast<std::int64_t>(c));
      EXPECT_EQ(found.classes[c].name, fmt::format("stage {}", c));
      EXPECT_EQ(found.classes[c].ranks, 64 / pp);
      EXPECT_EQ(found.classes[c].representative.value,
                static_cast<std::int32_t>(c) * 64 / static_cast<std::int32_t>(pp));
    }
    for (std::size_t rank = 0; rank < 64; ++rank) {
      EXPECT_EQ(found.class_of[rank], static_cast<std::int32_t>(rank) / (64 / static_cast<std::int32_t>(pp)));
    }
  }
}

TEST(RankClasses, AreAsManyOnManyNodesAsOnFew) {
  for (const Layout& layout :
       {Layout{}, Layout{.tp = 8}, Layout{.tp = 4, .pp = 2}, Layout{.tp = 2, .cp = 2, .pp = 4},
        Layout{.tp = 4, .pp = 2, .zero = 1, .mesh_order = {Axis::tp, Axis::pp, Axis::cp, Axis::dp}}}) {
    EXPECT_EQ(classes_of("dgx-a100:8", layout).classes.size(), classes_of("dgx-a100:128", layout).classes.size());
    EXPECT_EQ(classes_of("dgx-a100:8", layout).links.size(), classes_of("dgx-a100:128", layout).links.size());
  }
  const Layout experts{.tp = 4, .pp = 2, .ep = 8, .etp = 1, .sequence_parallel = true};
  EXPECT_EQ(classes_of("dgx-a100:8", experts, true).classes.size(), 2U);
  EXPECT_EQ(classes_of("dgx-a100:128", experts, true).classes.size(), 2U);
}

TEST(RankClasses, SeeTensorRanksInTheirNodeAndReplicasAcrossNodes) {
  // Fabrics of a DGX: nvlink, nic.
  const RankClasses found = classes_of("dgx-a100:16", {.tp = 8, .pp = 2});
  for (const RankClass& c : found.classes) {
    EXPECT_EQ(c.group(GroupKind::tp).view, (GroupView{8, {8, 8}}));
    EXPECT_EQ(c.group(GroupKind::dp).view, (GroupView{8, {1, 8}}));
    EXPECT_EQ(c.group(GroupKind::pp_next).view, (GroupView{2, {1, 2}}));
    EXPECT_EQ(c.group(GroupKind::norm).view, (GroupView{16, {8, 16}}));
    EXPECT_FALSE(c.group(GroupKind::dp).spans_classes());
    EXPECT_TRUE(c.group(GroupKind::norm).spans_classes());
    EXPECT_EQ(c.group(GroupKind::pp_next).members, (std::vector{ClassId{0}, ClassId{1}}));
    EXPECT_EQ(c.group(GroupKind::ep).view.size, 1);
  }
}

TEST(RankClasses, GradientGroupsHoldContextParallelRanks) {
  const RankClasses found = classes_of("dgx-a100:4", {.tp = 2, .cp = 2});
  EXPECT_EQ(found.classes[0].group(GroupKind::cp).view, (GroupView{2, {2, 2}}));
  EXPECT_EQ(found.classes[0].group(GroupKind::dp).view, (GroupView{16, {4, 16}}));
}

TEST(RankClasses, ExpertGroupsFollowTheirOwnMesh) {
  // etp 2 neighbours, ep 4 of stride 2 (the node), edp 4 of stride 8.
  const RankClasses found = classes_of("dgx-a100:4", {.tp = 8, .ep = 4, .etp = 2, .sequence_parallel = true}, true);
  ASSERT_EQ(found.classes.size(), 1U);
  EXPECT_EQ(found.classes[0].group(GroupKind::etp).view, (GroupView{2, {2, 2}}));
  EXPECT_EQ(found.classes[0].group(GroupKind::ep).view, (GroupView{4, {4, 4}}));
  EXPECT_EQ(found.classes[0].group(GroupKind::edp).view, (GroupView{4, {1, 4}}));
}

TEST(RankClasses, ASlowNicSplitsThem) {
  ClusterSpec spec = parse_cluster("dgx-a100:4");
  spec.overrides.push_back({.node = 3, .level = "nic", .bandwidth = Bandwidth{1e9}, .latency = {}, .device = {}});
  const Cluster cluster(spec);
  const RankClasses flat = classes_of(cluster, {.tp = 8});
  ASSERT_EQ(flat.classes.size(), 2U);
  EXPECT_EQ(flat.classes[0].ranks, 24);
  EXPECT_EQ(flat.classes[1].ranks, 8);
  EXPECT_EQ(flat.classes[0].name, "stage 0 on nodes 0-2");
  EXPECT_EQ(flat.classes[1].name, "stage 0 on node 3");
  EXPECT_TRUE(flat.classes[0].group(GroupKind::dp).spans_classes());
  EXPECT_FALSE(flat.classes[0].group(GroupKind::tp).spans_classes());
  const std::size_t nic = level(cluster, "nic");
  const LinkClass& slow = flat.links[flat.classes[1].links[nic].link_class];
  EXPECT_EQ(slow.link.bandwidth.bytes_per_second, 1e9);
  EXPECT_EQ(slow.name, "nic#1");
  // Two stages of two nodes: node 3 is alone, and node 1 is the one that talks to it.
  EXPECT_EQ(classes_of(cluster, {.tp = 8, .pp = 2}).classes.size(), 4U);
}

TEST(RankClasses, AnyFigureOfADeviceTellsThemApart) {
  const ClusterSpec plain = parse_cluster("dgx-a100:2");
  const auto count = [&](const std::function<void(Device&)>& change) {
    ClusterSpec spec = plain;
    Device device = spec.device;
    change(device);
    spec.overrides.push_back({.node = 1, .level = "", .bandwidth = {}, .latency = {}, .device = device});
    return classes_of(Cluster(spec), {.tp = 8}).classes.size();
  };
  EXPECT_EQ(count([](Device&) {}), 1U);
  EXPECT_EQ(count([](Device& d) { d.name += "-slow"; }), 2U);
  EXPECT_EQ(count([](Device& d) { d.matrix_tflops_16 /= 2; }), 2U);
  EXPECT_EQ(count([](Device& d) { d.matrix_tflops_32 /= 2; }), 2U);
  EXPECT_EQ(count([](Device& d) { d.vector_tflops_32 /= 2; }), 2U);
  EXPECT_EQ(count([](Device& d) { d.memory.value /= 2; }), 2U);
  EXPECT_EQ(count([](Device& d) { d.memory_bandwidth.bytes_per_second /= 2; }), 2U);
  EXPECT_EQ(count([](Device& d) { d.compute_units /= 2; }), 2U);
  EXPECT_EQ(count([](Device& d) { d.compute_slowdown += 0.125; }), 2U);
  EXPECT_EQ(count([](Device& d) { d.transfer_slowdown += 0.125; }), 2U);
}

TEST(RankClasses, GroupsThatDoNotFitNodesSplitThem) {
  // Groups of 6 over nodes of 4: ranks 0-3 | 4,5 and 6,7 | 8-11. Four ranks of a group see three companions in their
  // node, two see one. Of the four, the replicas of 0,1 (6,7) are among the two of their group, those of 2,3 (8,9)
  // among the four.
  const RankClasses found = classes_of("dgx-a100:3,gpus=4", {.tp = 6});
  EXPECT_EQ(found.class_of, (std::vector<std::int32_t>{0, 0, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0}));
  ASSERT_EQ(found.classes.size(), 3U);
  EXPECT_EQ(found.classes[0].group(GroupKind::tp).view, (GroupView{6, {4, 6}, false}));
  EXPECT_EQ(found.classes[1].group(GroupKind::tp).view, (GroupView{6, {4, 6}, false}));
  EXPECT_EQ(found.classes[2].group(GroupKind::tp).view, (GroupView{6, {2, 6}, false}));
  EXPECT_EQ(found.classes[0].group(GroupKind::tp).members, (std::vector{ClassId{0}, ClassId{1}, ClassId{2}}));
  EXPECT_EQ(found.classes[0].group(GroupKind::dp).members, (std::vector{ClassId{0}, ClassId{2}}));
  EXPECT_EQ(found.classes[1].group(GroupKind::dp).members, (std::vector{ClassId{1}}));
}

TEST(RankClasses, CountTheirRanksOnASharedLink) {
  const Cluster cluster(parse_cluster("p3dn:4"));  // one NIC a node, a PCIe switch for two GPUs
  const RankClasses flat = classes_of(cluster, {});
  ASSERT_EQ(flat.classes.size(), 1U);
  EXPECT_EQ(flat.classes[0].links[level(cluster, "nic")].ranks_on_link, 8);
  EXPECT_EQ(flat.classes[0].links[level(cluster, "pcie")].ranks_on_link, 2);
  EXPECT_EQ(flat.classes[0].links[level(cluster, "nvlink")].ranks_on_link, 1);
}

TEST(RankClasses, OfTwoStagesInANodeShareItsNic) {
  const Cluster cluster(parse_cluster("p3dn:4"));
  const Layout stages_inside{.tp = 4, .pp = 2, .mesh_order = {Axis::tp, Axis::pp, Axis::cp, Axis::dp}};
  const RankClasses found = classes_of(cluster, stages_inside);
  ASSERT_EQ(found.classes.size(), 2U);
  const std::size_t nic = level(cluster, "nic"), pcie = level(cluster, "pcie");
  EXPECT_EQ(found.classes[0].links[nic].link_class, found.classes[1].links[nic].link_class);
  EXPECT_EQ(found.classes[0].links[nic].ranks_on_link, 4);
  EXPECT_EQ(found.classes[1].links[nic].ranks_on_link, 4);
  EXPECT_NE(found.classes[0].links[pcie].link_class, found.classes[1].links[pcie].link_class);
  EXPECT_EQ(found.classes[0].group(GroupKind::pp_next).view, (GroupView{2, {2, 2}}));
  // With whole nodes for a stage, no NIC serves both.
  const RankClasses outside = classes_of(cluster, {.tp = 4, .pp = 2});
  EXPECT_NE(outside.classes[0].links[nic].link_class, outside.classes[1].links[nic].link_class);
  EXPECT_EQ(outside.classes[0].links[nic].ranks_on_link, 8);
}

}  // namespace
}  // namespace weft
