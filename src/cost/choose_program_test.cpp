#include "cost/choose_program.hpp"

#include <gtest/gtest.h>

#include "base/test_effort.hpp"
#include "cluster/presets.hpp"

namespace weft {
namespace {

std::vector<Rank> first_devices(std::int64_t count) {
  std::vector<Rank> members;
  for (std::int64_t i = 0; i < count; ++i) members.push_back(make_id<Rank>(i));
  return members;
}

TEST(RankPrograms, LargeBuffersTakeAnAlgorithmThatSendsTheLeast) {
  const Cluster cluster(parse_cluster("local:4,nic=200Mb/s"));
  const auto choices =
      rank_programs({.kind = Collective::all_reduce, .elements = 4 << 20, .members = first_devices(4)}, cluster);
  // The least is 2 (N-1)/N K over 25 MB/s: 1.0066 s for 16 MiB; the best stays within 1 % of it.
  const double least = 2 * 0.75 * (16 << 20) / 25e6;
  EXPECT_GE(seconds(choices.front().time), least);
  EXPECT_LE(seconds(choices.front().time), 1.01 * least);
  for (std::size_t i = 1; i < choices.size(); ++i) EXPECT_LE(choices[i - 1].time, choices[i].time);
}

TEST(RankPrograms, SmallBuffersTakeFewMessagesInARow) {
  const Cluster cluster(parse_cluster("local:8,nic=10Gb/s"));
  const auto choices =
      rank_programs({.kind = Collective::all_reduce, .elements = 16, .members = first_devices(8)}, cluster);
  // 64 bytes: latency alone. A ring has 14 messages in a row, the best at most log2(8) = 3.
  EXPECT_LE(choices.front().time, Nanos{3 * 50'000 + 1000});
}

TEST(RankPrograms, TwoLevelsWinWhereTheNodeIsFastInside) {
  const Cluster cluster(parse_cluster("dgx-a100:4,nic=10GB/s"));
  const auto choices =
      rank_programs({.kind = Collective::all_reduce, .elements = 64 << 20, .members = first_devices(32)}, cluster);
  EXPECT_EQ(choices.front().request.algorithm, Algorithm::hierarchical);
  EXPECT_EQ(choices.front().request.inner, 8);
}

TEST(FastestProgram, IsAsFastAsTheFirstOfAll) {
  test::Sample sample;
  for (const char* text : {"local:5,nic=1Gb/s", "local:8,nic=10Gb/s", "dgx-a100:2,nic=10GB/s"}) {
    const Cluster cluster(parse_cluster(text));
    for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::all_to_all}) {
      for (const std::int64_t elements : {1, 1000, 30'000, 1'000'000}) {
        if (!sample.takes()) continue;
        const ProgramQuestion question{.kind = kind,
                                       .elements = elements,
                                       .in_place = kind == Collective::all_reduce,
                                       .members = first_devices(cluster.device_count())};
        const double best = seconds(rank_programs(question, cluster).front().time);
        EXPECT_LE(seconds(fastest_program(question, cluster).time), 1.00001 * best + 1e-9) << text << " " << elements;
      }
    }
  }
}

TEST(MembersPerNode, NeedsEqualNodes) {
  const Cluster cluster(parse_cluster("dgx-a100:2"));
  EXPECT_EQ(members_per_node(cluster, first_devices(16)), 8);
  EXPECT_EQ(members_per_node(cluster, first_devices(8)), 0);   // one node
  EXPECT_EQ(members_per_node(cluster, first_devices(12)), 0);  // 8 and 4
  EXPECT_EQ(members_per_node(cluster, {Rank{0}, Rank{8}}), 0);
  EXPECT_EQ(members_per_node(cluster, {Rank{0}, Rank{1}, Rank{8}, Rank{9}}), 2);
}

}  // namespace
}  // namespace weft
