// Rank classes on topologies: what is simulated for the group of a class's representative holds for every rank of it.
#include <gtest/gtest.h>

#include <random>

#include "cluster/presets.hpp"
#include "cluster/topology_presets.hpp"
#include "cost/program_cost.hpp"
#include "graph/group_levels.hpp"
#include "graph/rank_classes.hpp"

namespace weft {
namespace {

Layout layout_of(std::int64_t tp, std::int64_t dp, std::int64_t pp) {
  Layout layout;
  layout.tp = tp;
  layout.dp = dp;
  layout.pp = pp;
  layout.micro_batch = 1;
  layout.global_batch = dp * pp;
  layout.seq = 16;
  return layout;
}

// A ring and a few chords of one of two rates.
Topology random_wires(int devices, std::mt19937& random) {
  Topology topology{"random", {}, {}};
  for (int i = 0; i < devices; ++i) topology.add({"d" + std::to_string(i), VertexKind::device, i});
  const auto rate = [&] { return Bandwidth{random() % 3 == 0 ? 1e8 : 4e8}; };
  for (int i = 0; i < devices; ++i) topology.connect(i, (i + 1) % devices, rate(), Nanos{10'000});
  for (int i = 0; i < 3; ++i) {
    const auto a = static_cast<std::int32_t>(random() % static_cast<unsigned>(devices));
    const auto b = static_cast<std::int32_t>(random() % static_cast<unsigned>(devices));
    if (a != b) topology.connect(a, b, rate(), Nanos{10'000});
  }
  return topology;
}

Nanos ring_time(ProgramCosts& costs, const std::vector<Rank>& members) {
  Operation ring;
  ring.communication = Communication{};
  ring.communication->collective = Collective::all_reduce;
  ring.communication->algorithm = Algorithm::ring;
  ring.communication->bytes = Bytes{40'000};
  return costs.cost(ring, members).value().time;
}

// Compares every rank with the representative of its class. Returns how many classes there are.
std::size_t expect_exact_classes(const Cluster& cluster, const Layout& layout) {
  const RankClasses found = find_rank_classes(cluster, layout, {});
  ProgramCosts costs(cluster, default_profile());
  for (std::int32_t r = 0; r < cluster.device_count(); ++r) {
    const RankClass& own = found.classes[found.class_of[r]];
    for (const GroupKind kind : group_kinds()) {
      const std::vector<Rank> members = group_members(layout, {}, kind, Rank{r});
      const ClassGroup& group = own.group(kind);
      if (members.size() < 2 || group.ranks.size() < 2) continue;
      EXPECT_EQ(ring_time(costs, members), ring_time(costs, group.ranks))
          << name_of(kind) << " of rank " << r << " of " << own.name;
      const std::vector<LevelSpan> spans = level_spans(group.borders, group.view.size);
      for (std::size_t i = 0; i < group.between.size(); ++i) {
        const std::vector<Rank> scoped = members_between(members, spans[i], Rank{r});
        EXPECT_EQ(ring_time(costs, scoped), ring_time(costs, group.between[i].ranks)) << name_of(kind);
      }
    }
  }
  return found.classes.size();
}

TEST(WiredClasses, HoldForEveryRankOfRandomTopologies) {
  std::mt19937 random(5);
  std::size_t folded = 0, unfolded = 0;
  for (int round = 0; round < 30; ++round) {
    const int devices = round % 2 == 0 ? 4 : 8;
    ClusterSpec spec = parse_cluster(round % 4 < 2 ? "local:" + std::to_string(devices)
                                                   : "dgx-a100:2,gpus=" + std::to_string(devices / 2));
    const Cluster plain(spec);
    spec.topology = SharedTopology(random_wires(devices, random));
    if (round % 3 == 0) {
      for (int d = 0; d < devices; ++d) spec.device_map.push_back((d * 3 + 1) % devices);
    }
    const Cluster cluster(spec);
    for (const Layout& layout :
         {layout_of(2, devices / 2, 1), layout_of(1, devices / 2, 2), layout_of(1, devices, 1)}) {
      const std::size_t classes = expect_exact_classes(cluster, layout);
      folded += classes < static_cast<std::size_t>(devices) ? 1 : 0;
      unfolded += classes > find_rank_classes(plain, layout, {}).classes.size() ? 1 : 0;
    }
  }
  EXPECT_GE(folded, 20U);    // ranks that are alike share a class
  EXPECT_GE(unfolded, 20U);  // where levels cannot tell ranks apart, links do
}

// Two pairs of ranks, each on both sides of one link: their rings move the same bytes over it, so that each takes as
// long as both alone. Between pairs that share no link nothing changes.
TEST(WiredClasses, GroupsThatMeetOnALinkWaitForEachOther) {
  Topology topology{"bridge", {}, {}};
  for (int i = 0; i < 4; ++i) topology.add({"d" + std::to_string(i), VertexKind::device, i});
  const std::int32_t left = topology.add({"left", VertexKind::network_switch});
  const std::int32_t right = topology.add({"right", VertexKind::network_switch});
  for (const std::int32_t d : {0, 2}) topology.connect(d, left, {1e12}, Nanos{0});
  for (const std::int32_t d : {1, 3}) topology.connect(d, right, {1e12}, Nanos{0});
  topology.connect(left, right, {1e8}, Nanos{0});
  ClusterSpec spec = parse_cluster("local:4,nic=100Gb/s");
  spec.topology = SharedTopology(topology);
  ProgramCosts costs{Cluster(spec), default_profile()};
  // Each of two ranks sends half of 40,000 bytes twice: 400 us at 100 MB/s.
  EXPECT_NEAR(static_cast<double>(ring_time(costs, {Rank{0}, Rank{1}}).value), 800'000, 100'000);
  EXPECT_LT(ring_time(costs, {Rank{0}, Rank{2}}).value, 100'000);
}

// Nodes that are wired alike stay one class, however many there are.
TEST(WiredClasses, StayFewWhereNodesAreAlike) {
  ClusterSpec spec = parse_cluster("dgx-a100:4");
  const Layout layout = layout_of(8, 4, 1);
  const std::size_t by_levels = find_rank_classes(Cluster(spec), layout, {}).classes.size();
  spec.topology = SharedTopology(parse_topology("dgx-a100:4"));
  EXPECT_EQ(find_rank_classes(Cluster(spec), layout, {}).classes.size(), by_levels);
}

}  // namespace
}  // namespace weft
