#include "graph/group_levels.hpp"

#include <gtest/gtest.h>

#include "graph/test_graphs.hpp"

namespace weft {
namespace {

ClassGroup dp_group(std::string_view cluster, const Layout& layout) {
  const Cluster built(parse_cluster(cluster));
  return find_rank_classes(built, test::filled(layout, built.device_count()), {}).classes[0].group(GroupKind::dp);
}

std::vector<std::int32_t> numbers(const std::vector<Rank>& ranks) {
  std::vector<std::int32_t> result;
  for (const Rank rank : ranks) result.push_back(rank.value);
  return result;
}

TEST(GroupLevels, AreNodesAndPlacesInThem) {
  // 16 ranks, tp 2: the replicas of rank 0 are 0, 2, ..., 14; node 0 has ranks 0 to 7. Fabrics: nvlink, nic.
  const ClassGroup group = dp_group("dgx-a100:2", {.tp = 2});
  ASSERT_EQ(group.borders, std::vector<std::int64_t>{4});
  EXPECT_EQ(numbers(group.scoped(Scope::inner).ranks), (std::vector<std::int32_t>{0, 2, 4, 6}));
  EXPECT_EQ(numbers(group.scoped(Scope::outer).ranks), (std::vector<std::int32_t>{0, 8}));
  EXPECT_EQ(group.scoped(Scope::inner).view, (GroupView{4, {4, 4}}));
  EXPECT_EQ(group.scoped(Scope::outer).view, (GroupView{2, {1, 2}}));
  EXPECT_EQ(group.scoped(Scope::whole).view, (GroupView{8, {4, 8}}));
}

// 16 ranks: two to a node, two nodes below a switch, four switches.
ClusterSpec four_switches() {
  ClusterSpec spec = parse_cluster("dgx-a100:8,gpus=2");
  spec.nodes_per_leaf = 2;
  spec.levels.back().joins = Domain::leaf;
  LevelSpec spine = spec.levels.back();
  spine.name = "spine";
  spine.joins = Domain::cluster;
  spec.levels.push_back(spine);
  return spec;
}

TEST(GroupLevels, NestWhereNodesLieBelowSeveralSwitches) {
  const Cluster cluster(four_switches());
  const auto classes = find_rank_classes(cluster, test::filled({}, 16), {}).classes;
  const ClassGroup& group = classes[0].group(GroupKind::dp);
  ASSERT_TRUE(group.has_scope(Scope::top));
  EXPECT_EQ(group.level_sizes(), LevelSizes(2, 2));
  EXPECT_EQ(numbers(group.scoped(Scope::inner).ranks), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(numbers(group.scoped(Scope::outer).ranks), (std::vector<std::int32_t>{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(numbers(group.scoped(Scope::middle).ranks), (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(numbers(group.scoped(Scope::top).ranks), (std::vector<std::int32_t>{0, 4, 8, 12}));
  for (const Scope scope : {Scope::inner, Scope::outer, Scope::middle, Scope::top}) {
    const ClassGroup& level = group.scoped(scope);
    EXPECT_EQ(level.view, group_views(cluster, level.ranks).front()) << name_of(scope);
    EXPECT_EQ(scoped_members(group.ranks, group.level_sizes(), Rank{0}, scope), level.ranks) << name_of(scope);
  }
  // Two ranks to a node and tensor parallelism over both: nodes are members, switches are all that is left.
  const auto tensor = find_rank_classes(cluster, test::filled({.tp = 2}, 16), {}).classes;
  EXPECT_FALSE(tensor[0].group(GroupKind::dp).has_scope(Scope::top));
  EXPECT_EQ(tensor[0].group(GroupKind::dp).level_sizes(), LevelSizes(2, 1));
}

// Two nodes of eight below each of two switches, in every node pairs of devices.
Cluster pairs_nodes_and_switches() {
  ClusterSpec spec = parse_cluster("dgx-a100:4");
  spec.nodes_per_leaf = 2;
  LevelSpec bridge = spec.levels.front(), spine = spec.levels.back();
  bridge.name = "bridge";
  bridge.joins = Domain::part;
  bridge.part = 2;
  spine.name = "spine";
  spec.levels.back().joins = Domain::leaf;
  spec.levels.insert(spec.levels.begin(), bridge);
  spec.levels.push_back(spine);
  return Cluster(spec);
}

ClassGroup group_of(const Cluster& cluster, GroupKind kind, const Layout& layout) {
  return find_rank_classes(cluster, test::filled(layout, cluster.device_count()), {}).classes[0].group(kind);
}

TEST(GroupLevels, MeetAtPairsNodesAndSwitches) {
  const Cluster cluster = pairs_nodes_and_switches();
  const ClassGroup group = group_of(cluster, GroupKind::dp, {});
  EXPECT_EQ(group.borders, (std::vector<std::int64_t>{2, 8, 16}));
  EXPECT_EQ(group.in_node, 8);
  EXPECT_EQ(group.level_sizes(), LevelSizes(8, 2));  // its own: nodes and switches
  const auto ranks = [&](Scope scope, LevelSizes levels) { return numbers(group.scoped(scope, levels).ranks); };
  using Ranks = std::vector<std::int32_t>;
  EXPECT_EQ(ranks(Scope::inner, {2, 4}), (Ranks{0, 1}));
  EXPECT_EQ(ranks(Scope::middle, {2, 4}), (Ranks{0, 2, 4, 6}));
  EXPECT_EQ(ranks(Scope::top, {2, 4}), (Ranks{0, 8, 16, 24}));
  EXPECT_EQ(ranks(Scope::middle, {2, 8}), (Ranks{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(ranks(Scope::outer, {16, 1}), (Ranks{0, 16}));
  for (const LevelSizes levels : {LevelSizes(2), LevelSizes(8), LevelSizes(16), LevelSizes(2, 4), LevelSizes(2, 8)}) {
    for (const Scope scope : {Scope::inner, Scope::outer, Scope::middle, Scope::top}) {
      if (!group.has_scope(scope, levels)) continue;
      const ClassGroup& level = group.scoped(scope, levels);
      EXPECT_EQ(level.view, group_views(cluster, level.ranks).front()) << in_words(scope, levels);
      EXPECT_EQ(scoped_members(group.ranks, levels, Rank{0}, scope), level.ranks) << in_words(scope, levels);
    }
  }
  EXPECT_FALSE(group.has_scope(Scope::inner, {4, 1}));
  EXPECT_FALSE(group.has_scope(Scope::top, {8, 4}));
  EXPECT_FALSE(group.has_scope(Scope::middle, {2, 1}));
}

TEST(GroupLevels, OfAGroupInANodeArePairs) {
  const Cluster cluster = pairs_nodes_and_switches();
  const ClassGroup tensor = group_of(cluster, GroupKind::tp, {.tp = 8});
  EXPECT_EQ(tensor.level_sizes(), LevelSizes(2));
  EXPECT_FALSE(tensor.leaves_node());
  EXPECT_FALSE(tensor.has_node_levels());
  EXPECT_TRUE(tensor.has_scope(Scope::inner));
  // With tensor parallelism in pairs, replicas meet in nodes and switches; with a whole node, in switches.
  EXPECT_EQ(group_of(cluster, GroupKind::dp, {.tp = 2}).borders, (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(group_of(cluster, GroupKind::dp, {.tp = 8}).borders, (std::vector<std::int64_t>{2}));
}

TEST(GroupLevels, AreMissingWhereAllShareANodeOrNoTwoDo) {
  EXPECT_TRUE(dp_group("dgx-a100:1", {}).borders.empty());
  EXPECT_TRUE(dp_group("dgx-a100:4", {.tp = 8}).borders.empty());
  EXPECT_TRUE(dp_group("local:4", {}).borders.empty());
}

TEST(GroupLevels, OfLargeGroupsNeedNoListOfMembers) {
  const ClassGroup group = dp_group("dgx-a100:128", {});
  ASSERT_EQ(group.borders, std::vector<std::int64_t>{8});
  EXPECT_TRUE(group.ranks.empty());
  EXPECT_EQ(group.scoped(Scope::inner).view, (GroupView{8, {8, 8}}));
  EXPECT_EQ(group.scoped(Scope::inner).ranks.size(), 8U);
  EXPECT_EQ(group.scoped(Scope::outer).view, (GroupView{128, {1, 128}}));
  EXPECT_TRUE(group.scoped(Scope::outer).ranks.empty());
}

// The views that the levels state are those that the cluster gives for the ranks they list.
TEST(GroupLevels, SeeTheFabricsAsTheirRanksDo) {
  for (const char* name : {"dgx-a100:4", "dgx1-v100:2", "p4de:4"}) {
    const Cluster cluster(parse_cluster(name));
    for (const std::int64_t tp : {1, 2, 4}) {
      const ClassGroup group = dp_group(name, {.tp = tp});
      ASSERT_EQ(group.between.size(), 2U) << name;
      for (const ClassGroup& level : group.between) {
        EXPECT_EQ(level.view, group_views(cluster, level.ranks).front()) << name << " tp " << tp;
      }
    }
  }
}

}  // namespace
}  // namespace weft
