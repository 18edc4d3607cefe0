#include "cluster/topology_cuts.hpp"

#include <gtest/gtest.h>

#include <random>

#include "cluster/max_flow.hpp"
#include "cluster/topology_presets.hpp"

namespace weft {
namespace {

// Devices first, then switches; every vertex is on a cycle, so that all reach all.
Topology random_topology(std::uint32_t seed, std::int32_t devices, std::int32_t switches) {
  std::mt19937 random(seed);
  Topology topology{"random", {}, {}};
  const std::int32_t count = devices + switches;
  for (std::int32_t i = 0; i < count; ++i) {
    topology.add({"v" + std::to_string(i), i < devices ? VertexKind::device : VertexKind::network_switch});
  }
  const auto bandwidth = [&] { return Bandwidth{1e6 * static_cast<double>(1 + random() % 9)}; };
  for (std::int32_t i = 0; i < count; ++i) topology.connect_one_way(i, (i + 1) % count, bandwidth(), {});
  for (std::int32_t i = 0; i < 2 * count; ++i) {
    const auto from = static_cast<std::int32_t>(random() % count), to = static_cast<std::int32_t>(random() % count);
    if (from != to) topology.connect_one_way(from, to, bandwidth(), {});
  }
  return topology;
}

std::int64_t out_units(const Topology& topology, std::uint32_t inside) {
  std::int64_t sum = 0;
  for (const TopologyLink& link : topology.links) {
    if ((inside >> link.from & 1) != 0 && (inside >> link.to & 1) == 0) sum += bandwidth_units(link.bandwidth);
  }
  return sum;
}

TEST(MaxFlow, IsTheSmallestOfAllCuts) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const Topology topology = random_topology(seed, 4, 3);
    MaxFlow flow(7);
    for (const TopologyLink& link : topology.links) flow.add_edge(link.from, link.to, bandwidth_units(link.bandwidth));
    std::int64_t least = MaxFlow::kUnlimited;
    for (std::uint32_t set = 0; set < 128; ++set) {
      if ((set & 1) != 0 && (set >> 3 & 1) == 0) least = std::min(least, out_units(topology, set));
    }
    EXPECT_EQ(flow.run(0, 3), least);
    std::uint32_t side = 0;
    const std::vector<bool> found = flow.source_side();
    for (std::size_t i = 0; i < found.size(); ++i) side |= static_cast<std::uint32_t>(found[i]) << i;
    EXPECT_EQ(out_units(topology, side), least);
    EXPECT_EQ(flow.run(0, 3, least / 2), least / 2);
  }
}

TEST(SlowestGatherCut, IsTheSlowestOfAllSubsets) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const std::int32_t devices = 2 + static_cast<std::int32_t>(seed % 5),
                       switches = static_cast<std::int32_t>(seed % 4);
    const Topology topology = random_topology(seed, devices, switches);
    std::vector<std::int64_t> weights;
    for (std::int32_t i = 0; i < devices; ++i) weights.push_back(seed % 3 == 0 ? 1 : (seed + 7 * i) % 4);
    if (std::count(weights.begin(), weights.end(), 0) > devices - 2) continue;
    const GatherCut cut = slowest_gather_cut(topology, weights);
    // Weight over bandwidth, compared exactly.
    std::int64_t weight = 0, bandwidth = 1;
    for (std::uint32_t set = 1; set < 1u << (devices + switches); ++set) {
      std::int64_t inside = 0, held = 0;
      for (std::int32_t i = 0; i < devices; ++i) {
        if ((set >> i & 1) == 0) continue;
        inside += weights[i];
        ++held;
      }
      if (held == devices) continue;
      const std::int64_t out = out_units(topology, set);
      if (inside * bandwidth > weight * out) {
        weight = inside;
        bandwidth = out;
      }
    }
    EXPECT_EQ(cut.weight * bandwidth, weight * cut.out_bandwidth) << "seed " << seed;
  }
}

TEST(SlowestGatherCut, GivesForestCollsOptimumOnItsMachines) {
  // GB/s of all_gather that ForestColl's own program finds on these machines.
  for (const auto& [name, devices, expected] :
       {std::tuple{"dgx1-v100", 8, 171.43}, std::tuple{"dgx-a100", 8, 342.86}, std::tuple{"dgx-a100:2", 16, 346.67},
        std::tuple{"mi250", 16, 342.86}}) {
    const GatherCut cut = slowest_gather_cut(parse_topology(name));
    EXPECT_NEAR(gather_bandwidth(cut, devices).bytes_per_second * 1e-9, expected, 0.005) << name;
  }
}

TEST(SlowestBisection, OfTheCubeMeshIsSixLinks) {
  // Four pairs of the two quads are joined by 2, 2, 1 and 1 links of 25 GB/s, and no other halves by fewer.
  const Bisection bisection = slowest_bisection(parse_topology("dgx1-v100"));
  EXPECT_DOUBLE_EQ(bisection.bandwidth.bytes_per_second, 150e9);
  EXPECT_EQ(bisection.half, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(bisection.of_all_halves);
}

TEST(ReversedTopology, TurnsEveryLink) {
  const Topology topology = random_topology(3, 4, 1);
  EXPECT_EQ(reversed(reversed(topology)), topology);
  EXPECT_EQ(out_units(topology, 1) > 0, true);
}

}  // namespace
}  // namespace weft
