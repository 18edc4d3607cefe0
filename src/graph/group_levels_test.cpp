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
  ASSERT_EQ(group.levels.size(), 2U);
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

TEST(GroupLevels, AreMissingWhereAllShareANodeOrNoTwoDo) {
  EXPECT_TRUE(dp_group("dgx-a100:1", {}).levels.empty());
  EXPECT_TRUE(dp_group("dgx-a100:4", {.tp = 8}).levels.empty());
  EXPECT_TRUE(dp_group("local:4", {}).levels.empty());
}

TEST(GroupLevels, OfLargeGroupsNeedNoListOfMembers) {
  const ClassGroup group = dp_group("dgx-a100:128", {});
  ASSERT_EQ(group.levels.size(), 2U);
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
      ASSERT_EQ(group.levels.size(), 2U) << name;
      for (const ClassGroup& level : group.levels) {
        EXPECT_EQ(level.view, group_views(cluster, level.ranks).front()) << name << " tp " << tp;
      }
    }
  }
}

}  // namespace
}  // namespace weft
