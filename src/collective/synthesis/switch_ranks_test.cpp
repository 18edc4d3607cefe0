// Programs in which switches reduce and multicast: the expected rates are derived by hand from what must cross a link.
#include "collective/synthesis/switch_ranks.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.hpp"
#include "cluster/topology_presets.hpp"
#include "collective/program_traffic.hpp"
#include "collective/synthesis/synthesized_program.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

SynthesisRequest in_network(Collective kind, std::int64_t parts = 1) {
  return {.kind = kind, .in_place = false, .parts = parts, .max_pieces = 64, .in_network = true};
}

TEST(SwitchRanks, LikeSwitchesAreOneRankBehindTheDevices) {
  const auto ways = switch_ranks_for(parse_topology("dgx-h100:2"), Collective::all_reduce);
  ASSERT_EQ(ways.size(), 1u);  // rails reduce nothing
  EXPECT_EQ(ways[0].names,
            (std::vector<std::string>{"node0.nvswitch0 and 3 like it", "node1.nvswitch0 and 3 like it"}));
  const std::vector<std::int32_t> devices = ways[0].topology.devices();
  ASSERT_EQ(devices.size(), 18u);
  const Topology before = parse_topology("dgx-h100:2");
  for (std::size_t rank = 0; rank < 16; ++rank) {
    EXPECT_EQ(ways[0].topology.vertices[devices[rank]].name, before.vertices[before.devices()[rank]].name);
  }
}

TEST(SwitchRanks, ThereAreNoneWhereSwitchesOnlyPassOn) {
  EXPECT_TRUE(switch_ranks_for(parse_topology("dgx-a100"), Collective::all_reduce).empty());
  EXPECT_THROW(synthesize(parse_topology("dgx-a100"), in_network(Collective::all_reduce)), Error);
}

TEST(SwitchRanks, AnAbilityIsUsedForWhatItIs) {
  Topology topology = parse_topology("dgx-h100");
  for (TopologyVertex& vertex : topology.vertices) vertex.reduces = false;
  EXPECT_EQ(switch_ranks_for(topology, Collective::all_gather).size(), 1u);
  EXPECT_TRUE(switch_ranks_for(topology, Collective::reduce_scatter).empty());
  EXPECT_TRUE(switch_ranks_for(topology, Collective::all_reduce).empty());
}

// Every GPU has 450 GB/s each way. Without NVLS it sends 2 x 7/8 of the buffer: 450 x 8 / 14. With it, all of the
// buffer once, which nothing beats: the others need to know what it has.
TEST(InNetwork, AllReduceOfADgxH100SendsTheBufferOnce) {
  const Topology topology = parse_topology("dgx-h100");
  const Synthesis without = synthesize(topology, {Collective::all_reduce, false, 1, 64});
  EXPECT_NEAR(1e-9 / without.seconds, 450.0 * 8 / 14, 1e-6);
  EXPECT_TRUE(without.switches.empty());
  const Synthesis with = synthesize(topology, in_network(Collective::all_reduce, 4));
  EXPECT_NEAR(1e-9 / with.seconds, 450, 1e-6);
  EXPECT_NEAR(1e-9 / with.least.seconds, 450, 1e-6);
  ASSERT_EQ(with.switches.size(), 1u);
  EXPECT_EQ(with.program.ranks.size(), 9u);
  EXPECT_EQ(with.program.spec.ranks, 8);
  EXPECT_EQ(verify_program(with.program).words(), "");
  // What the devices send by the program itself: a buffer each.
  constexpr std::int64_t kBytes = 1 << 20;
  const ProgramTraffic traffic = program_traffic(with.program, even_sizes(with.program.spec, kBytes), Bytes{1});
  for (std::size_t rank = 0; rank < 8; ++rank) EXPECT_LE(traffic.sent[rank].bytes.value, kBytes);
}

// A GPU must receive 7/8 of the buffer whoever copies it, so the rate stays 450 x 8 / 7; but it sends an eighth.
TEST(InNetwork, AllGatherOfADgxH100SendsEverySliceOnce) {
  const Synthesis with = synthesize(parse_topology("dgx-h100"), in_network(Collective::all_gather));
  EXPECT_NEAR(1e-9 / with.seconds, 450.0 * 8 / 7, 1e-6);
  EXPECT_NEAR(with.least.seconds, with.seconds, 1e-20);
  EXPECT_EQ(verify_program(with.program).words(), "");
  constexpr std::int64_t kBytes = 1 << 20;
  const ProgramTraffic traffic = program_traffic(with.program, even_sizes(with.program.spec, kBytes), Bytes{1});
  for (std::size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(traffic.sent[rank].bytes.value, kBytes / 8);
}

// The buffer must leave each of two nodes over eight adapters of 50 GB/s, once.
TEST(InNetwork, TwoNodesReachTheCutBetweenThem) {
  const Topology topology = parse_topology("dgx-h100:2");
  const Synthesis without = synthesize(topology, {Collective::all_reduce, false, 1, 64});
  const Synthesis with = synthesize(topology, in_network(Collective::all_reduce));
  EXPECT_NEAR(1e-9 / with.least.seconds, 400, 1e-6);
  EXPECT_NEAR(1e-9 / with.seconds, 400, 1e-6);
  EXPECT_GT(without.seconds, 1.2 * with.seconds);
  EXPECT_EQ(verify_program(with.program).words(), "");
}

// Four nodes of eight adapters of 50 GB/s; rails add nothing up. Between nodes an all_reduce is one of four ranks,
// which send 2 x 3/4 of the buffer each over 400 GB/s.
TEST(InNetwork, FourNodesReachWhatNodesMustSend) {
  const Synthesis with = synthesize(parse_topology("dgx-h100:4"), in_network(Collective::all_reduce));
  EXPECT_NEAR(1e-9 / with.least.seconds, 400.0 * 4 / 6, 1e-6);
  EXPECT_NEAR(1e-9 / with.seconds, 400.0 * 4 / 6, 1e-6);
  EXPECT_EQ(with.least.senders, 4);
  EXPECT_TRUE(with.least.senders_are_nodes);
  // Rails that add up and copy could do better: then only the cut of a node bounds it.
  Topology sharp = parse_topology("dgx-h100:4");
  for (TopologyVertex& vertex : sharp.vertices) {
    if (vertex.kind == VertexKind::network_switch) vertex.multicasts = vertex.reduces = true;
  }
  EXPECT_NEAR(1e-9 / least_time(sharp, Collective::all_reduce, true).seconds, 400, 1e-6);
}

// How many messages bring what each of n senders has to all of them, by trying all orders: the state is who knows what.
int messages_of_gossip(int n) {
  const auto knows = [n](std::uint32_t state, int who) { return state >> (who * n) & ((1U << n) - 1); };
  std::uint32_t start = 0;
  for (int i = 0; i < n; ++i) start |= 1U << (i * n + i);
  std::set<std::uint32_t> seen{start};
  std::vector<std::uint32_t> now{start};
  for (int messages = 0;; ++messages) {
    std::vector<std::uint32_t> next;
    for (const std::uint32_t state : now) {
      if (state == (1U << (n * n)) - 1) return messages;
      for (int from = 0; from < n; ++from) {
        for (int to = 0; to < n; ++to) {
          const std::uint32_t told = state | knows(state, from) << (to * n);
          if (seen.insert(told).second) next.push_back(told);
        }
      }
    }
    now = std::move(next);
  }
}

TEST(LeastTime, SendersNeedTwiceOneLessThanTheyAreMessages) {
  for (const int senders : {2, 3, 4}) EXPECT_EQ(messages_of_gossip(senders), 2 * (senders - 1));
}

// A star of n devices at b each whose switch does both: b for an all_reduce, b n / (n - 1) for the halves.
TEST(InNetwork, StarsReachTheirCut) {
  for (const int devices : {2, 3, 5, 16}) {
    Topology star{"star", {}, {}};
    const std::int32_t hub = star.add({"hub", VertexKind::network_switch, -1, true, true});
    for (int i = 0; i < devices; ++i) star.connect(star.add({"d" + std::to_string(i)}), hub, {1e9}, {});
    for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
      const Synthesis synthesis = synthesize(star, in_network(kind, 2));
      const double expected = kind == Collective::all_reduce ? 1e-9 : 1e-9 * (devices - 1) / devices;
      EXPECT_NEAR(synthesis.seconds, expected, 1e-18) << devices << " " << name_of(kind);
      EXPECT_NEAR(synthesis.least.seconds, expected, 1e-18);
      EXPECT_EQ(verify_program(synthesis.program).words(), "");
    }
  }
}

// The least time of an all_reduce with switches that take part, by trying every set that separates devices.
double slowest_of_all_cuts(const Topology& topology) {
  const std::vector<std::int32_t> devices = topology.devices();
  double slowest = 0;
  for (std::uint32_t set = 1; set < 1U << topology.vertices.size(); ++set) {
    std::size_t inside = 0;
    double out = 0;
    for (const std::int32_t device : devices) inside += set >> device & 1U;
    if (inside == 0 || inside == devices.size()) continue;
    for (const TopologyLink& link : topology.links) {
      if ((set >> link.from & 1U) != 0 && (set >> link.to & 1U) == 0) out += link.bandwidth.bytes_per_second;
    }
    slowest = std::max(slowest, 1 / out);
  }
  return slowest;
}

TEST(InNetwork, RandomWiringsAreProvenAndNeverSlowerThanWithout) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Topology topology{"random", {}, {}};
    const auto devices = static_cast<std::int32_t>(2 + random() % 4);
    for (std::int32_t i = 0; i < devices + 2; ++i) {
      const bool is_device = i < devices;
      topology.add({"v" + std::to_string(i), is_device ? VertexKind::device : VertexKind::network_switch,
                    is_device || i == devices ? 0 : -1, !is_device, !is_device});
    }
    const auto bandwidth = [&] { return Bandwidth{1e9 * static_cast<double>(1 + random() % 3)}; };
    for (std::int32_t i = 1; i < devices + 2; ++i) {
      topology.connect(i, static_cast<std::int32_t>(random() % i), bandwidth(), {});
    }
    for (std::int32_t i = 0; i < devices; ++i) topology.connect(i, devices + 1, bandwidth(), {});
    for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
      const Synthesis without = synthesize(topology, {kind, false, 1, 16});
      SynthesisRequest request = in_network(kind, 1 + seed % 2);
      request.max_pieces = 16;
      const Synthesis with = synthesize(topology, request);
      EXPECT_EQ(verify_program(with.program).words(), "") << name_of(kind) << ", seed " << seed;
      EXPECT_LE(with.seconds, without.seconds * (1 + 1e-6)) << name_of(kind) << ", seed " << seed;
      EXPECT_GE(with.seconds, with.least.seconds * (1 - 1e-9)) << name_of(kind) << ", seed " << seed;
      if (kind == Collective::all_reduce) {
        EXPECT_NEAR(with.least.seconds, slowest_of_all_cuts(topology), 1e-15) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace weft
