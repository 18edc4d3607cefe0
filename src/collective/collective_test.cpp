#include "collective/collective.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "cluster/presets.hpp"

namespace weft {
namespace {

std::vector<Rank> ranks(std::initializer_list<int> list) {
  std::vector<Rank> result;
  for (const int r : list) result.push_back(Rank{r});
  return result;
}

std::vector<Rank> first_ranks(int n) {
  std::vector<Rank> result;
  for (int r = 0; r < n; ++r) result.push_back(Rank{r});
  return result;
}

TEST(RingTraffic, AllReduceInOneNodeMovesTwiceNMinusOneOverNOfTheBytes) {
  const Cluster cluster(parse_cluster("dgx-a100:1"));
  for (const int n : {2, 3, 4, 7, 8}) {
    const auto views = group_views(cluster, first_ranks(n));
    const auto traffic = collective_traffic(cluster, Collective::all_reduce, Algorithm::ring, Bytes{8400}, views[0]);
    ASSERT_EQ(traffic.fabrics.size(), 1U);
    EXPECT_DOUBLE_EQ(traffic.fabrics[0].bytes, 2.0 * (n - 1) / n * 8400);
    EXPECT_EQ(traffic.steps, 2 * (n - 1));
  }
}

TEST(RingTraffic, AllReduceIsReduceScatterFollowedByAllGather) {
  const Cluster cluster(parse_cluster("dgx-a100:2"));
  const auto view = group_views(cluster, first_ranks(16))[3];
  const auto both = collective_traffic(cluster, Collective::all_reduce, Algorithm::ring, Bytes{1600}, view);
  const auto scatter = collective_traffic(cluster, Collective::reduce_scatter, Algorithm::ring, Bytes{1600}, view);
  const auto gather = collective_traffic(cluster, Collective::all_gather, Algorithm::ring, Bytes{1600}, view);
  ASSERT_EQ(both.fabrics.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_DOUBLE_EQ(both.fabrics[i].bytes, scatter.fabrics[i].bytes + gather.fabrics[i].bytes);
  }
  EXPECT_EQ(both.steps, scatter.steps + gather.steps);
}

TEST(RingTraffic, OneEdgePerNodeCrossesTheNic) {
  // 16 ranks on two nodes: a ring has 16 edges, 2 of them between nodes. The 8 ranks of a node share one crossing,
  // so a rank's share of what it sends is 1/8 over the nic and 7/8 over nvlink.
  const Cluster cluster(parse_cluster("dgx-a100:2"));
  const auto view = group_views(cluster, first_ranks(16))[0];
  const auto traffic = collective_traffic(cluster, Collective::all_gather, Algorithm::ring, Bytes{1600}, view);
  const double sent = 15.0 / 16 * 1600;
  ASSERT_EQ(traffic.fabrics.size(), 2U);
  EXPECT_DOUBLE_EQ(traffic.fabrics[0].bytes, sent * 7 / 8);
  EXPECT_DOUBLE_EQ(traffic.fabrics[1].bytes, sent / 8);
}

// A piece that goes once around the ring crosses a nic for every node it enters; every other step stays inside a node.
TEST(Steps, OfARingCrossEachFabricAsOftenAsAPieceDoes) {
  for (const int nodes : {2, 3, 4}) {
    const Cluster cluster(parse_cluster("dgx-a100:" + std::to_string(nodes)));
    const int n = 8 * nodes;
    const auto view = group_views(cluster, first_ranks(n))[0];
    const auto gather = collective_traffic(cluster, Collective::all_gather, Algorithm::ring, Bytes{1600}, view);
    EXPECT_EQ(gather.fabrics[1].steps, nodes);
    EXPECT_EQ(gather.fabrics[0].steps, n - 1 - nodes);
    const auto reduce = collective_traffic(cluster, Collective::all_reduce, Algorithm::ring, Bytes{1600}, view);
    EXPECT_EQ(reduce.fabrics[0].steps + reduce.fabrics[1].steps, reduce.steps);
    EXPECT_EQ(reduce.fabrics[1].steps, 2 * nodes);
  }
}

TEST(Steps, OfATreeAreItsLevels) {
  const Cluster cluster(parse_cluster("dgx-a100:4"));
  const auto view = group_views(cluster, first_ranks(32))[0];
  const auto traffic = collective_traffic(cluster, Collective::all_reduce, Algorithm::tree, Bytes{1600}, view);
  EXPECT_EQ(traffic.fabrics[1].steps, 2 * 2);  // four nodes: two levels up, two down
  EXPECT_EQ(traffic.fabrics[0].steps, 2 * 3);  // eight ranks: three
}

TEST(Steps, OfOneFabricAreAll) {
  const Cluster cluster(parse_cluster("dgx-a100:4"));
  const auto view = group_views(cluster, ranks({0, 8, 16, 24}))[0];
  const auto traffic = collective_traffic(cluster, Collective::all_reduce, Algorithm::ring, Bytes{1600}, view);
  ASSERT_EQ(traffic.fabrics.size(), 1U);
  EXPECT_EQ(traffic.fabrics[0].steps, 6);
}

TEST(RingTraffic, OneRankPerNodeUsesOnlyTheNic) {
  const Cluster cluster(parse_cluster("dgx-a100:4"));
  const auto view = group_views(cluster, ranks({0, 8, 16, 24}))[2];
  const auto traffic = collective_traffic(cluster, Collective::all_reduce, Algorithm::ring, Bytes{400}, view);
  ASSERT_EQ(traffic.fabrics.size(), 1U);
  EXPECT_EQ(cluster.level_name(traffic.fabrics[0].fabric), "nic");
  EXPECT_DOUBLE_EQ(traffic.fabrics[0].bytes, 2.0 * 3 / 4 * 400);
}

TEST(AllToAll, SendsEachPeerItsPieceOverTheFabricThatJoinsThem) {
  // 16 ranks: 7 peers in the node, 8 in the other.
  const Cluster cluster(parse_cluster("dgx-a100:2"));
  const auto view = group_views(cluster, first_ranks(16))[0];
  const auto traffic = collective_traffic(cluster, Collective::all_to_all, Algorithm::direct, Bytes{1600}, view);
  ASSERT_EQ(traffic.fabrics.size(), 2U);
  EXPECT_DOUBLE_EQ(traffic.fabrics[0].bytes, 700);
  EXPECT_DOUBLE_EQ(traffic.fabrics[1].bytes, 800);
}

TEST(MinimumTraffic, NeverExceedsWhatTheRingMovesOnTheOuterFabric) {
  const Cluster cluster(parse_cluster("dgx-a100:4"));
  for (const int n : {8, 16, 24, 32}) {
    const auto view = group_views(cluster, first_ranks(n))[0];
    const auto ring = collective_traffic(cluster, Collective::all_reduce, Algorithm::ring, Bytes{1 << 20}, view);
    const auto least = minimum_traffic(cluster, Collective::all_reduce, Bytes{1 << 20}, view);
    EXPECT_LE(least.back().bytes, ring.fabrics.back().bytes * (1 + 1e-12)) << n;
  }
  // Two nodes of eight: reduced inside first, half of the buffer leaves each node twice: 2 * 1/2 * K over 8 NICs.
  const auto view = group_views(cluster, first_ranks(16))[0];
  EXPECT_DOUBLE_EQ(minimum_traffic(cluster, Collective::all_reduce, Bytes{800}, view).back().bytes, 100);
}

TEST(MinimumTraffic, OfUnequalDomainsIsWhatEachMustReceive) {
  // Four ranks in one node, two in another: both nodes must receive the other's sum, K bytes, and no more, shared by
  // their ranks. Taking 6/2 = 3 domains of two would demand 4/3 K of the smaller node.
  const Cluster cluster(parse_cluster("dgx-a100:2,gpus=4"));
  const auto views = group_views(cluster, first_ranks(6));
  EXPECT_EQ(views[0], (GroupView{6, {4, 6}, false}));
  EXPECT_EQ(views[5], (GroupView{6, {2, 6}, false}));
  EXPECT_DOUBLE_EQ(minimum_traffic(cluster, Collective::all_reduce, Bytes{800}, views[0]).back().bytes, 200);
  EXPECT_DOUBLE_EQ(minimum_traffic(cluster, Collective::all_reduce, Bytes{800}, views[5]).back().bytes, 400);
  // all_gather: a node receives what the others hold, 2/6 and 4/6 of the buffer.
  EXPECT_DOUBLE_EQ(minimum_traffic(cluster, Collective::all_gather, Bytes{600}, views[0]).back().bytes, 200.0 / 4);
  EXPECT_DOUBLE_EQ(minimum_traffic(cluster, Collective::all_gather, Bytes{600}, views[5]).back().bytes, 400.0 / 2);
}

TEST(RingTraffic, OfUnequalNodesLeavesEachNodeOnce) {
  const Cluster cluster(parse_cluster("dgx-a100:2,gpus=4"));
  const auto views = group_views(cluster, first_ranks(6));
  const double sent = 5.0 / 6 * 600;
  for (const auto& [view, ranks_of_node] : {std::pair{views[0], 4}, std::pair{views[5], 2}}) {
    const auto traffic = collective_traffic(cluster, Collective::all_gather, Algorithm::ring, Bytes{600}, view);
    EXPECT_DOUBLE_EQ(traffic.fabrics.back().bytes * ranks_of_node, sent);
  }
}

TEST(GroupView, OneMemberMovesNothing) {
  const Cluster cluster(parse_cluster("dgx-a100:1"));
  const auto view = group_views(cluster, ranks({5}))[0];
  EXPECT_TRUE(collective_traffic(cluster, Collective::all_reduce, Algorithm::ring, Bytes{9}, view).fabrics.empty());
}

// 4 nodes of 8. A rank has 32 pieces of 100 bytes, 24 for other nodes, of which half are different rows; they cross
// once (1200 bytes). Inside, whatever the member at the sender's place does not keep is handed on: 7 of 8 pieces, of
// the 8 for the own node and of the 24 for others, which arrive at as many others in turn.
TEST(ForwardedTraffic, CrossesOnceAndIsHandedOnInside) {
  const Cluster cluster(parse_cluster("dgx-a100:4"));
  const auto view = group_views(cluster, first_ranks(32))[5];
  const auto traffic = forwarded_traffic(cluster, Bytes{3200}, view, 0.5);
  ASSERT_EQ(traffic.fabrics.size(), 2U);
  EXPECT_DOUBLE_EQ(traffic.fabrics[0].bytes, 28 * 100);
  EXPECT_DOUBLE_EQ(traffic.fabrics[1].bytes, 12 * 100);
  EXPECT_EQ(traffic.fabrics[0].steps, 1);
  EXPECT_EQ(traffic.fabrics[1].steps, 1);
  const auto least = minimum_forwarded_traffic(cluster, Bytes{3200}, view, 0.5);
  ASSERT_EQ(least.size(), 2U);
  EXPECT_DOUBLE_EQ(least[0].bytes, 7 * 100);
  EXPECT_DOUBLE_EQ(least[1].bytes, 12 * 100);
}

// The same nodes with pairs of devices: rows still cross between nodes once. Of 7/8 of the buffer a pair hands on 1/8
// and the rest of the node 6/8.
TEST(ForwardedTraffic, CrossesBetweenNodesAndNotBetweenPairs) {
  ClusterSpec spec = parse_cluster("dgx-a100:4");
  LevelSpec bridge = spec.levels.front();
  bridge.name = "bridge";
  bridge.joins = Domain::part;
  bridge.part = 2;
  spec.levels.insert(spec.levels.begin(), bridge);
  const Cluster cluster(spec);
  const auto view = group_views(cluster, first_ranks(32)).front();
  EXPECT_EQ(forwarding_domain(cluster, view), 8);
  const CollectiveTraffic traffic = forwarded_traffic(cluster, Bytes{3200}, view, 0.5);
  ASSERT_EQ(traffic.fabrics.size(), 3U);
  EXPECT_DOUBLE_EQ(traffic.fabrics[0].bytes, 4 * 100);
  EXPECT_DOUBLE_EQ(traffic.fabrics[1].bytes, 24 * 100);
  EXPECT_DOUBLE_EQ(traffic.fabrics[2].bytes, 12 * 100);
  EXPECT_EQ(traffic.fabrics[0].steps, 0);
  EXPECT_EQ(traffic.fabrics[1].steps, 1);
  EXPECT_EQ(traffic.fabrics[2].steps, 1);
}

TEST(ForwardedTraffic, IsDirectWhereNobodyCanHandOn) {
  const Cluster cluster(parse_cluster("dgx-a100:4"));
  for (const auto& members : {first_ranks(8), ranks({0, 8, 16, 24})}) {
    const auto view = group_views(cluster, members)[1];
    EXPECT_EQ(forwarding_domain(cluster, view), 0);
    const auto direct = collective_traffic(cluster, Collective::all_to_all, Algorithm::direct, Bytes{3200}, view);
    EXPECT_EQ(forwarded_traffic(cluster, Bytes{3200}, view, 0.5).fabrics, direct.fabrics);
  }
}

}  // namespace
}  // namespace weft
