// TACCL's synthesis, step by step: routes against all combinations of trees, times against a checker that shares no
// code with the schedule, programs against the verifier.
#include "collective/synthesis/sketch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "base/error.hpp"
#include "base/test_folder.hpp"
#include "cluster/topology_presets.hpp"
#include "collective/lowered.hpp"
#include "collective/synthesis/linear_program.hpp"
#include "collective/synthesis/sketch_program.hpp"
#include "collective/synthesis/sketch_routes.hpp"
#include "collective/synthesis/sketch_times.hpp"
#include "collective/verify/symbolic_run.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

Topology small_wiring(std::uint32_t seed, std::int32_t ranks) {
  std::mt19937 random(seed);
  Topology wiring{"random", {}, {}};
  for (std::int32_t i = 0; i < ranks; ++i) wiring.add({.name = "d" + std::to_string(i), .node = 0});
  const auto join = [&](std::int32_t a, std::int32_t b) {
    wiring.connect(a, b, {1e9 * static_cast<double>(1 + random() % 4)},
                   Nanos{1000 * static_cast<std::int64_t>(1 + random() % 3)});
  };
  for (std::int32_t i = 1; i < ranks; ++i) join(i, static_cast<std::int32_t>(random() % i));
  for (std::int32_t a = 0; a < ranks; ++a) {
    for (std::int32_t b = a + 1; b < ranks; ++b) {
      if (random() % 2 == 0) join(a, b);
    }
  }
  return wiring;
}

// All trees from a source: an edge into every other rank, such that all are reached.
std::vector<std::vector<std::int32_t>> all_trees(const LogicalTopology& logical, std::int32_t source) {
  std::vector<std::vector<std::int32_t>> trees;
  std::vector<std::int32_t> into(logical.ranks, -1);
  std::function<void(std::int32_t)> choose = [&](std::int32_t rank) {
    if (rank == logical.ranks) {
      std::vector<std::int32_t> tree;
      std::vector<bool> has(logical.ranks, false);
      has[source] = true;
      for (bool grows = true; grows;) {
        grows = false;
        for (std::int32_t r = 0; r < logical.ranks; ++r) {
          if (r == source || has[r] || !has[logical.edges[into[r]].from]) continue;
          has[r] = grows = true;
          tree.push_back(into[r]);
        }
      }
      if (std::ssize(tree) + 1 == logical.ranks) trees.push_back(tree);
      return;
    }
    if (rank == source) return choose(rank + 1);
    for (const std::int32_t edge : logical.in[rank]) {
      into[rank] = edge;
      choose(rank + 1);
    }
  };
  choose(0);
  return trees;
}

double least_relaxed(const LogicalTopology& logical, double bytes) {
  std::vector<std::vector<std::vector<std::int32_t>>> trees;
  for (std::int32_t r = 0; r < logical.ranks; ++r) trees.push_back(all_trees(logical, r));
  std::vector<RoutedChunk> chunks(logical.ranks);
  double least = 1e9;
  std::function<void(std::int32_t)> choose = [&](std::int32_t rank) {
    if (rank == logical.ranks) {
      least = std::min(least, relaxed_seconds(logical, chunks, bytes));
      return;
    }
    for (const auto& tree : trees[rank]) {
      chunks[rank] = {rank, tree};
      choose(rank + 1);
    }
  };
  choose(0);
  return least;
}

TEST(SketchRoutes, AreTheBestOfAllTrees) {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    const LogicalTopology logical = logical_topology(small_wiring(seed, seed % 3 == 0 ? 4 : 3), {.name = "plain"});
    for (const double bytes : {100.0, 20e3}) {
      const double least = least_relaxed(logical, bytes);
      const SketchRoutes grown = route_chunks(logical, {.name = "plain"}, {bytes, 0});
      EXPECT_FALSE(grown.by_solver);
      EXPECT_GE(grown.seconds, least * (1 - 1e-9)) << "seed " << seed;
      EXPECT_LE(grown.seconds, least * 1.5) << "seed " << seed;
      if (!has_linear_solver()) continue;
      const SketchRoutes solved = route_chunks(logical, {.name = "plain"}, {bytes, 30});
      EXPECT_TRUE(solved.by_solver) << "seed " << seed;
      EXPECT_NEAR(solved.seconds, least, least * 1e-5) << "seed " << seed;
    }
  }
}

// Every chunk is sent on only after it has come, links carry one message at a time, and everybody gets everything.
void check_times(const LogicalTopology& logical, const std::vector<RoutedChunk>& chunks, double bytes,
                 const TimedMessages& timed) {
  std::map<std::pair<std::int32_t, std::int32_t>, double> there;  // chunk, rank
  for (std::size_t c = 0; c < chunks.size(); ++c) there[{static_cast<std::int32_t>(c), chunks[c].source}] = 0;
  std::map<std::int32_t, std::vector<std::pair<double, double>>> busy;
  for (const SketchMessage& message : timed.messages) {
    const LogicalEdge& edge = logical.edges[message.edge];
    EXPECT_NEAR(message.arrival, message.start + edge.alone(bytes * static_cast<double>(message.chunks.size())), 1e-12);
    EXPECT_LE(message.arrival, timed.seconds);
    for (const std::int32_t chunk : message.chunks) {
      const bool is_new = there.try_emplace({chunk, edge.to}, message.arrival).second;
      EXPECT_TRUE(is_new) << "chunk " << chunk << " comes to rank " << edge.to << " twice";
    }
    for (const auto& [link, per_byte] : edge.links) busy[link].emplace_back(message.start, message.arrival);
  }
  EXPECT_EQ(std::ssize(there), std::ssize(chunks) * logical.ranks);
  for (const SketchMessage& message : timed.messages) {
    for (const std::int32_t chunk : message.chunks) {
      EXPECT_GE(message.start, there.at({chunk, logical.edges[message.edge].from}) - 1e-12);
    }
  }
  for (auto& [link, spans] : busy) {
    std::ranges::sort(spans);
    // Here edges are single links, which are busy for all of a message.
    for (std::size_t i = 1; i < spans.size(); ++i) EXPECT_GE(spans[i].first, spans[i - 1].second - 1e-12);
  }
}

TEST(SketchTimes, AreCausalAndLinksCarryOneMessageAtATime) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const Sketch sketch{.name = "two chunks", .chunks = 2};
    const LogicalTopology logical = logical_topology(small_wiring(seed, 5), sketch);
    for (const double bytes : {10.0, 10e3}) {
      const SketchRoutes routes = route_chunks(logical, sketch, {bytes, 0});
      for (const ChunkOrder order : {ChunkOrder::longest_way_first, ChunkOrder::first_ready_first}) {
        const TimedMessages apart = order_chunks(logical, routes.chunks, bytes, order);
        check_times(logical, routes.chunks, bytes, apart);
        const TimedMessages together = join_chunks(logical, routes.chunks, bytes, apart);
        check_times(logical, routes.chunks, bytes, together);
        EXPECT_LE(together.seconds, apart.seconds);
      }
    }
  }
}

// Two ranks, one link of 10 us and 1 GB/s, two chunks of 1 us each way. By hand: apart 2 (10 + 1), together 10 + 2.
TEST(SketchTimes, ChunksThatLieSideBySideTravelTogether) {
  Topology pair{"pair", {}, {}};
  pair.add({.name = "a", .node = 0});
  pair.add({.name = "b", .node = 0});
  pair.connect(0, 1, {1e9}, Nanos{10'000});
  const Sketch sketch{.name = "pair", .chunks = 2};
  const LogicalTopology logical = logical_topology(pair, sketch);
  const SketchRoutes routes = route_chunks(logical, sketch, {1000, 0});
  const TimedMessages apart = order_chunks(logical, routes.chunks, 1000, ChunkOrder::first_ready_first);
  EXPECT_NEAR(apart.seconds, 22e-6, 1e-12);
  const TimedMessages together = join_chunks(logical, routes.chunks, 1000, apart);
  EXPECT_NEAR(together.seconds, 12e-6, 1e-12);
  EXPECT_EQ(together.messages.size(), 2u);
}

TEST(SketchPrograms, AreProven) {
  const Sketch one{.name = "one node", .chunks = 2};
  const Sketch relayed{.name = "one sender of a node", .nodes = 2, .crossings = {{0, {1}}}, .rotations = {{8, 16}}};
  const Sketch direct{.name = "own place", .nodes = 2, .crosses_to_same_place = true};
  for (Sketch sketch : {one, relayed, direct}) {
    const Topology topology = parse_topology(sketch.nodes == 1 ? "dgx1-v100" : "dgx1-v100:2");
    for (const bool blocking : {true, false}) {
      sketch.blocking_latency = blocking;
      for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
        const auto family = sketch_family(topology, {kind, kind == Collective::all_reduce, 64 << 10}, sketch, 0);
        EXPECT_GE(family.size(), 2u);
        for (const FamilyMember& member : family) {
          EXPECT_EQ(verify_program(member.program).words(), "") << member.name;
          lower(member.program, run_symbolically(member.program), even_sizes(member.program.spec, 64 << 10), Bytes{1});
        }
      }
    }
  }
}

// Chunks of ranks that a rotation joins take turned ways.
TEST(SketchRoutes, FollowTheSymmetry) {
  const Topology topology = parse_topology("dgx1-v100:2");
  const Sketch sketch{.name = "halves", .nodes = 2, .crossings = {{0, {1}}}, .rotations = {{8, 16}}};
  const LogicalTopology logical = logical_topology(topology, sketch);
  const SketchRoutes routes = route_chunks(logical, sketch, {1000, 0});
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    ASSERT_EQ(routes.chunks[rank].edges.size(), 15u);
    for (std::size_t i = 0; i < 15; ++i) {
      const LogicalEdge &here = logical.edges[routes.chunks[rank].edges[i]],
                        &there = logical.edges[routes.chunks[rank + 8].edges[i]];
      EXPECT_EQ((here.from + 8) % 16, there.from);
      EXPECT_EQ((here.to + 8) % 16, there.to);
      EXPECT_TRUE(here.from / 8 == here.to / 8 || (here.from % 8 == 0 && here.to % 8 == 1));
    }
  }
}

TEST(Sketches, ThatDoNotFitAreRefused) {
  const Topology topology = parse_topology("dgx1-v100:2");
  const auto refusal = [&](const Sketch& sketch) {
    return test::error_of([&] { sketch_family(topology, {Collective::all_gather, false, 1 << 20}, sketch, 0); });
  };
  EXPECT_EQ(refusal({.name = "s.json", .nodes = 4}), "s.json: nnodes 4: the topology has 2 nodes");
  EXPECT_EQ(refusal({.name = "s.json", .nodes = 2, .crossings = {{8, {1}}}}),
            "s.json: internode_conn: GPU 8 is not in 0..7");
  EXPECT_EQ(refusal({.name = "s.json", .nodes = 2, .crossings = {{0, {1}}}, .rotations = {{1, 8}}}),
            "s.json: symmetry_offsets [1, 8]: rank 0 sends to rank 9, but rank 1 may not send to rank 10");
}

}  // namespace
}  // namespace weft
