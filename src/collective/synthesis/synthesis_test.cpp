#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/error.hpp"
#include "cluster/topology_presets.hpp"
#include "collective/synthesis/synthesized_program.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

std::vector<std::int64_t> equal_shares(const Topology& topology) {
  return std::vector<std::int64_t>(topology.devices().size(), 1);
}

// Devices and switches with links of both directions, joined to a tree first.
Topology random_wiring(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto devices = static_cast<std::int32_t>(2 + random() % 5), switches = static_cast<std::int32_t>(random() % 3);
  Topology topology{"random", {}, {}};
  for (std::int32_t i = 0; i < devices + switches; ++i) {
    topology.add({"v" + std::to_string(i), i < devices ? VertexKind::device : VertexKind::network_switch});
  }
  const auto bandwidth = [&] { return Bandwidth{1e9 * static_cast<double>(1 + random() % 4)}; };
  for (std::int32_t i = 1; i < devices + switches; ++i) {
    topology.connect(i, static_cast<std::int32_t>(random() % i), bandwidth(), {});
  }
  for (std::int32_t i = 0; i < devices; ++i) {
    const auto other = static_cast<std::int32_t>(random() % topology.vertices.size());
    if (other != i) topology.connect(i, other, bandwidth(), {});
  }
  return topology;
}

// The slowest of all cuts, by trying every subset: seconds to gather a buffer of one byte.
double brute_force_seconds(const Topology& topology) {
  const std::size_t count = topology.vertices.size();
  const std::vector<std::int32_t> devices = topology.devices();
  double slowest = 0;
  for (std::uint32_t set = 1; set < 1U << count; ++set) {
    double inside = 0, out = 0;
    for (const std::int32_t device : devices) inside += (set >> device & 1U) != 0 ? 1 : 0;
    if (inside == static_cast<double>(devices.size())) continue;
    for (const TopologyLink& link : topology.links) {
      if ((set >> link.from & 1U) != 0 && (set >> link.to & 1U) == 0) out += link.bandwidth.bytes_per_second;
    }
    if (inside > 0) slowest = std::max(slowest, inside / out / static_cast<double>(devices.size()));
  }
  return slowest;
}

double longest_load(const Topology& topology, const TreePacking& packing) {
  const std::vector<double> loads = link_loads(topology, packing);
  double longest = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    longest = std::max(longest, loads[i] / topology.links[i].bandwidth.bytes_per_second);
  }
  return longest;
}

// Every tree spans all ranks, its edges are ways of the topology with capacity for its pieces, and every rank's pieces
// are carried once.
void expect_trees(const Topology& topology, const TreePacking& packing) {
  const std::vector<std::int32_t> devices = topology.devices();
  std::vector<std::int64_t> carried(devices.size(), 0);
  for (const SpanningTree& tree : packing.trees) {
    carried[tree.root] += tree.pieces;
    std::set<std::int32_t> reached{tree.root};
    for (const TreeEdge& edge : tree.edges) {
      EXPECT_TRUE(reached.contains(edge.from));
      EXPECT_TRUE(reached.insert(edge.to).second);
      std::int64_t capacity = 0;
      for (const Route& route : edge.routes) {
        EXPECT_EQ(route.vertices.front(), devices[edge.from]);
        EXPECT_EQ(route.vertices.back(), devices[edge.to]);
        for (std::size_t i = 1; i + 1 < route.vertices.size(); ++i) {
          EXPECT_NE(topology.vertices[route.vertices[i]].kind, VertexKind::device);
        }
        capacity += route.capacity;
      }
      EXPECT_EQ(capacity, tree.pieces);
    }
    EXPECT_EQ(reached.size(), devices.size());
  }
  EXPECT_EQ(carried, packing.pieces);
}

TEST(TreePacking, ReachesTheSlowestOfAllCuts) {
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    const Topology topology = random_wiring(seed);
    const TreePacking packing = pack_trees(topology, equal_shares(topology), 1024);
    expect_trees(topology, packing);
    EXPECT_NEAR(longest_load(topology, packing), brute_force_seconds(topology), 1e-15) << "seed " << seed;
    EXPECT_NEAR(packing.of_optimum(), 1, 1e-9);
  }
}

TEST(TreePacking, ReachesForestCollsFigures) {
  for (const auto& [name, expected] : {std::pair{"dgx1-v100", 171.43}, std::pair{"dgx-a100", 342.86},
                                       std::pair{"dgx-a100:2", 346.67}, std::pair{"mi250", 342.86}}) {
    const Topology topology = parse_topology(name);
    const TreePacking packing = pack_trees(topology, equal_shares(topology), 64);
    expect_trees(topology, packing);
    EXPECT_NEAR(1e-9 / longest_load(topology, packing), expected, 0.005) << name;
  }
}

TEST(TreePacking, TakesFewerPiecesAtASmallLoss) {
  // Ten devices on links of 7 and 11: the exact optimum takes 11 pieces of a rank and more.
  Topology topology{"odd", {}, {}};
  for (int i = 0; i < 6; ++i) topology.add({"d" + std::to_string(i)});
  for (std::int32_t i = 0; i < 6; ++i) topology.connect(i, (i + 1) % 6, {i % 2 == 0 ? 7.3e9 : 11.9e9}, {});
  const TreePacking exact = pack_trees(topology, equal_shares(topology), 1024);
  EXPECT_NEAR(exact.of_optimum(), 1, 1e-9);
  const TreePacking few = pack_trees(topology, equal_shares(topology), 4);
  expect_trees(topology, few);
  EXPECT_LE(few.pieces.front(), 4);
  EXPECT_GT(few.of_optimum(), 0.75);
  EXPECT_LE(few.of_optimum(), 1);
  EXPECT_GE(longest_load(topology, few), brute_force_seconds(topology) * (1 - 1e-9));
}

// Every vertex is on one-way cycles, so that each takes in what it gives out, over links that differ by direction.
TEST(TreePacking, OneWayLinksReachTheSlowestOfAllCutsToo) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    Topology topology{"one way", {}, {}};
    for (int i = 0; i < 6; ++i) {
      topology.add({"v" + std::to_string(i), i < 4 ? VertexKind::device : VertexKind::network_switch});
    }
    for (int cycle = 0; cycle < 4; ++cycle) {
      std::vector<std::int32_t> order = {0, 1, 2, 3, 4, 5};
      std::shuffle(order.begin(), order.end(), random);
      const Bandwidth bandwidth{1e9 * static_cast<double>(1 + random() % 5)};
      for (std::size_t i = 0; i < order.size(); ++i) {
        topology.connect_one_way(order[i], order[(i + 1) % order.size()], bandwidth, {});
      }
    }
    const TreePacking packing = pack_trees(topology, equal_shares(topology), 1024);
    expect_trees(topology, packing);
    EXPECT_NEAR(longest_load(topology, packing), brute_force_seconds(topology), 1e-15) << "seed " << seed;
    // Few pieces either work, proven by the trees themselves, or are refused in words.
    try {
      const TreePacking few = pack_trees(topology, equal_shares(topology), 2);
      expect_trees(topology, few);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("too few for switches"), std::string::npos);
    }
  }
}

TEST(TreePacking, RefusesASwitchThatTakesInMoreThanItGivesOut) {
  Topology topology = parse_topology("dgx-a100");
  topology.links.front().bandwidth = {1e9};
  EXPECT_THROW(pack_trees(topology, equal_shares(topology), 64), Error);
}

TEST(Synthesis, ProgramsAreProvenForRandomTopologies) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Topology topology = random_wiring(seed);
    for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
      const SynthesisRequest request{kind, seed % 2 == 0, 1 + seed % 3, 16};
      const Synthesis synthesis = synthesize(topology, request);
      EXPECT_EQ(synthesis.program.spec.kind, kind);
      EXPECT_EQ(verify_program(synthesis.program).words(), "") << name_of(kind) << ", seed " << seed;
      EXPECT_GE(synthesis.seconds, synthesis.least.seconds * (1 - 1e-9));
    }
  }
}

TEST(Synthesis, ProgramsAreProvenForMachines) {
  for (const char* name : {"dgx1-v100", "dgx-a100", "dgx-a100:2", "mi250"}) {
    const Topology topology = parse_topology(name);
    for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
      const Synthesis synthesis = synthesize(topology, {kind, true, 2, 64});
      EXPECT_EQ(verify_program(synthesis.program).words(), "") << name << " " << name_of(kind);
    }
  }
}

TEST(Synthesis, AllReduceIsOptimalWhereDevicesAreEqual) {
  // 2 (N-1) / N of the buffer leaves and enters every device, of 6 x 25 GB/s.
  const Synthesis synthesis = synthesize(parse_topology("dgx1-v100"), {Collective::all_reduce, false, 1, 64});
  EXPECT_NEAR(synthesis.seconds, 2 * 7.0 / 8 / 150e9, 1e-18);
  EXPECT_NEAR(synthesis.least.seconds, synthesis.seconds, 1e-18);
  EXPECT_EQ(synthesis.roots.size(), 8u);
}

TEST(Synthesis, AllReduceLeavesASlowRankNothingToAddUp) {
  // The last rank has a quarter of the bandwidth b. It must send and get the whole buffer, 4 times a buffer over b; a
  // ring, or trees with pieces rooted there too, takes 2 (N-1)/N of the buffer over b/4: 6 and 6.67 for 4 and 6 ranks.
  for (const int ranks : {4, 6}) {
    Topology topology{"slow", {}, {}};
    const std::int32_t hub = topology.add({"switch", VertexKind::network_switch});
    for (int i = 0; i < ranks; ++i) {
      const Bandwidth bandwidth{i + 1 == ranks ? 0.25e9 : 1e9};
      const std::int32_t nic = topology.add({"n" + std::to_string(i), VertexKind::nic});
      topology.connect(topology.add({"d" + std::to_string(i)}), nic, bandwidth, {});
      topology.connect(nic, hub, bandwidth, {});
    }
    const Synthesis synthesis = synthesize(topology, {Collective::all_reduce, true, 4, 64});
    EXPECT_EQ(std::ssize(synthesis.roots), ranks - 1);
    EXPECT_EQ(synthesis.roots.back(), ranks - 2);
    EXPECT_NEAR(synthesis.seconds, 4e-9, 1e-15);
    EXPECT_NEAR(synthesis.least.seconds, 4e-9, 1e-15);
    EXPECT_EQ(verify_program(synthesis.program).words(), "");
  }
}

TEST(Synthesis, RefusesWhatItCannotDo) {
  const Topology topology = parse_topology("dgx1-v100");
  EXPECT_THROW(synthesize(topology, {Collective::all_to_all, false, 1, 64}), Error);
  EXPECT_THROW(synthesize(topology, {Collective::all_gather, false, 0, 64}), Error);
  EXPECT_THROW(synthesize(topology, {Collective::all_gather, false, 1, 0}), Error);
}

}  // namespace
}  // namespace weft
