#include "collective/synthesis/exchange_flow.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "cluster/topology_presets.hpp"
#include "collective/synthesis/linear_program.hpp"

namespace weft {
namespace {

constexpr FlowMethod kMethods[] = {FlowMethod::weights, FlowMethod::solver_if_there};

Topology star_of(int devices, double bandwidth) {
  Topology star{"star", {}, {}};
  const std::int32_t hub = star.add({"hub", VertexKind::network_switch});
  for (int i = 0; i < devices; ++i) star.connect(star.add({"d" + std::to_string(i)}), hub, {bandwidth}, {});
  return star;
}

Topology ring_of(int devices, double bandwidth) {
  Topology ring{"ring", {}, {}};
  for (int i = 0; i < devices; ++i) ring.add({"d" + std::to_string(i)});
  for (int i = 0; i < devices; ++i) ring.connect(i, (i + 1) % devices, {bandwidth}, {});
  return ring;
}

void expect_whole_shares(const ExchangeFlow& flow, std::size_t ranks) {
  ASSERT_EQ(flow.ways.size(), ranks * ranks);
  for (std::size_t pair = 0; pair < flow.ways.size(); ++pair) {
    const auto from = static_cast<std::int32_t>(pair / ranks), to = static_cast<std::int32_t>(pair % ranks);
    double sum = 0;
    for (const ExchangeWay& way : flow.ways[pair]) {
      EXPECT_EQ(way.ranks.front(), from);
      EXPECT_EQ(way.ranks.back(), to);
      sum += way.share;
    }
    EXPECT_NEAR(sum, from == to ? 0 : 1, 1e-6);
  }
}

// Every device sends N-1 of its N slices over its one link.
TEST(ExchangeFlow, OnAStarEveryLinkCarriesAllSlicesButOne) {
  for (const FlowMethod method : kMethods) {
    const ExchangeFlow flow = exchange_flow(star_of(5, 1e9), method);
    EXPECT_NEAR(flow.seconds, 0.8e-9, 1e-15);
    EXPECT_NEAR(flow.least_seconds, 0.8e-9, 1e-15);
    expect_whole_shares(flow, 5);
  }
}

// Four devices in a ring: slices to the two neighbours take one link, those to the far side two, half of them each way
// round. 16 slices x links over 8 links of b: two slices of a quarter of the buffer each.
TEST(ExchangeFlow, OnARingTheFarSlicesGoBothWaysRound) {
  for (const FlowMethod method : kMethods) {
    const ExchangeFlow flow = exchange_flow(ring_of(4, 1e9), method);
    EXPECT_NEAR(flow.seconds, 0.5e-9, 0.5e-9 * 0.02);
    EXPECT_LE(flow.least_seconds, 0.5e-9 * (1 + 1e-9));
    EXPECT_NEAR(flow.least_seconds, 0.5e-9, 0.5e-9 * 0.02);
    expect_whole_shares(flow, 4);
  }
}

// The bound is one, whatever it was found by: every all_to_all must bring its slices over each device's own links, and
// what the flow takes is never below it.
TEST(ExchangeFlow, ThePricesBoundTheFlowOfRandomWirings) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Topology topology{"random", {}, {}};
    const auto devices = static_cast<std::int32_t>(3 + random() % 4);
    for (std::int32_t i = 0; i < devices; ++i) topology.add({"d" + std::to_string(i)});
    for (std::int32_t i = 1; i < devices; ++i) {
      topology.connect(i, static_cast<std::int32_t>(random() % i), {1e9 * static_cast<double>(1 + random() % 4)}, {});
    }
    for (int extra = 0; extra < 3; ++extra) {
      const auto a = static_cast<std::int32_t>(random() % devices), b = static_cast<std::int32_t>(random() % devices);
      if (a != b) topology.connect(a, b, {1e9 * static_cast<double>(1 + random() % 4)}, {});
    }
    double own_links = 0;  // of the device whose links out are the slowest
    for (std::int32_t device = 0; device < devices; ++device) {
      double out = 0;
      for (const TopologyLink& link : topology.links) out += link.from == device ? link.bandwidth.bytes_per_second : 0;
      own_links = std::max(own_links, (devices - 1.0) / devices / out);
    }
    const ExchangeFlow near = exchange_flow(topology, FlowMethod::weights);
    expect_whole_shares(near, static_cast<std::size_t>(devices));
    EXPECT_LE(near.least_seconds, near.seconds * (1 + 1e-9)) << "seed " << seed;
    EXPECT_GE(near.seconds, own_links * (1 - 1e-9)) << "seed " << seed;
    EXPECT_GE(near.least_seconds, 0.9 * near.seconds) << "seed " << seed;
    if (!has_linear_solver()) continue;
    const ExchangeFlow exact = exchange_flow(topology, FlowMethod::solver_if_there);
    EXPECT_TRUE(exact.by_solver);
    expect_whole_shares(exact, static_cast<std::size_t>(devices));
    EXPECT_LE(near.least_seconds, exact.seconds * (1 + 1e-6)) << "seed " << seed;
    EXPECT_GE(near.seconds, exact.seconds * (1 - 1e-6)) << "seed " << seed;
  }
}

TEST(ExchangeFlow, ChunksComeAsNearToTheSharesAsWholeNumbersDo) {
  ExchangeFlow flow;
  flow.ways = {{}, {{{0, 1}, 0.6}, {{0, 2, 1}, 0.4}}, {}, {}};
  const auto ways = ways_of_chunks(flow, 4);  // 2.4 and 1.6: two each
  ASSERT_EQ(ways.size(), 16u);
  const std::vector<std::int32_t> straight{0, 1}, around{0, 2, 1};
  EXPECT_EQ(std::vector(ways.begin() + 4, ways.begin() + 8), (std::vector{straight, straight, around, around}));
  for (const std::size_t none : {0, 3, 8, 15}) EXPECT_TRUE(ways[none].empty());
}

// x + y with x >= 1.5, y >= 2 - x and x whole: 2 and 0.
TEST(LinearProgram, SolvesOverWholeNumbers) {
  if (!has_linear_solver()) GTEST_SKIP() << "libCbcSolver.so.3 is not installed (Debian: coinor-libcbc3)";
  LinearProgram program;
  const std::int32_t sum = program.add_row(2, kUnbounded);
  program.add_column({.cost = 1, .least = 1.5, .is_whole = true, .entries = {{sum, 1}}});
  program.add_column({.cost = 1, .entries = {{sum, 1}}});
  const auto values = solve(program, 10);
  ASSERT_TRUE(values.has_value());
  EXPECT_NEAR((*values)[0], 2, 1e-6);
  EXPECT_NEAR((*values)[1], 0, 1e-6);
}

}  // namespace
}  // namespace weft
