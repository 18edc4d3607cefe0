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
