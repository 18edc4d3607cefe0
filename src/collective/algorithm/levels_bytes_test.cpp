// Bytes of algorithms whose ranks have roles: workers and servers, inner and outer groups. See bytes_test.cpp.
#include "collective/algorithm/test_bytes.hpp"

namespace weft {
namespace {

using enum Collective;

// Without helpers a worker pushes N-1 slices and serves its own to N-1. With M servers a worker pushes K, and a server
// sends K/M to each of N workers.
TEST(ParameterServerBytes, AreCountedAtWorkerAndServer) {
  check_all(Algorithm::parameter_server, all_reduce, [](const ProgramTraffic& traffic, const ProgramRequest& request) {
    const std::int64_t n = request.ranks;
    ASSERT_EQ(static_cast<std::int64_t>(traffic.sent.size()), n + request.servers);
    for (std::int64_t rank = 0; rank < n; ++rank) {
      ASSERT_EQ(sent(traffic, rank) * n, request.servers == 0 ? 2 * (n - 1) * K : n * K);
    }
    for (std::int64_t server = n; server < n + request.servers; ++server) {
      ASSERT_EQ(sent(traffic, server) * request.servers, n * K);
      std::int64_t received = 0;
      for (const auto& [pair, count] : traffic.between) received += pair.second == server ? count.bytes.value : 0;
      ASSERT_EQ(received * request.servers, n * K);
    }
  });
}

struct Levels {
  MessageCount inside, across;
};

Levels levels_of(const ProgramTraffic& traffic, const ProgramRequest& request, std::int64_t rank) {
  Levels levels;
  for (const auto& [pair, count] : traffic.between) {
    if (pair.first != rank) continue;
    MessageCount& level = pair.first / request.inner == pair.second / request.inner ? levels.inside : levels.across;
    level.bytes.value += count.bytes.value;
    level.messages += count.messages;
  }
  return levels;
}

// I ranks in each of O groups. all_reduce: inside, reduce_scatter and all_gather of slices K/I between all pairs;
// across, a ring of O ranks on that slice. reduce_scatter and all_gather: half of it. all_to_all: inside, all that goes
// to place i of any group (K/I) for every other place; across, all that I ranks have for one rank of another group.
TEST(HierarchicalBytes, AreCountedInsideAndAcrossGroups) {
  const auto expect = [](Collective kind, std::int64_t passes, bool exchanges) {
    check_all(Algorithm::hierarchical, kind, [&](const ProgramTraffic& traffic, const ProgramRequest& request) {
      const std::int64_t inner = request.inner;
      const std::int64_t outer = request.ranks / inner;
      for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
        const Levels levels = levels_of(traffic, request, rank);
        ASSERT_EQ(levels.inside.bytes.value * inner, passes * (inner - 1) * K);
        ASSERT_EQ(levels.across.bytes.value * outer * (exchanges ? 1 : inner), passes * (outer - 1) * K);
        if (exchanges) {
          ASSERT_EQ(levels.across.messages, (outer - 1) * request.parts);
        }
      }
    });
  };
  expect(all_reduce, 2, false);
  expect(reduce_scatter, 1, false);
  expect(all_gather, 1, false);
  expect(all_to_all, 1, true);
}

// Every group but the root's is sent K once, over I chains; inside every group I-1 ranks get K, from whomever. Reduce:
// inside, reduce_scatter of slices K/I everywhere and a gather of I-1 of them at the root.
TEST(HierarchicalBytes, OfBroadcastAndReduceCrossOncePerGroup) {
  for (const Collective kind : {broadcast, reduce}) {
    check_all(Algorithm::hierarchical, kind, [&](const ProgramTraffic& traffic, const ProgramRequest& request) {
      const std::int64_t inner = request.inner;
      const std::int64_t outer = request.ranks / inner;
      std::int64_t inside = 0;
      std::int64_t across = 0;
      for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
        const Levels levels = levels_of(traffic, request, rank);
        inside += levels.inside.bytes.value;
        across += levels.across.bytes.value;
        ASSERT_LE(levels.across.bytes.value * inner, K);
      }
      ASSERT_EQ(across, (outer - 1) * K);
      if (kind == broadcast) {
        ASSERT_EQ(inside, outer * (inner - 1) * K);
      }
      if (kind == reduce) {
        ASSERT_EQ(inside * inner, (outer * inner * (inner - 1) + inner - 1) * K);
      }
    });
  }
}

// Inside, the I-1 ranks of a group beside the one that collects move their slices, K/N each; across, a group's I slices
// travel as one message (and part).
TEST(HierarchicalBytes, OfGatherAndScatterCrossOnceWithTheWholeGroup) {
  for (const Collective kind : {gather, scatter}) {
    check_all(Algorithm::hierarchical, kind, [](const ProgramTraffic& traffic, const ProgramRequest& request) {
      const std::int64_t inner = request.inner;
      const std::int64_t outer = request.ranks / inner;
      Levels all;
      for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
        const Levels levels = levels_of(traffic, request, rank);
        all.inside.bytes.value += levels.inside.bytes.value;
        all.across.bytes.value += levels.across.bytes.value;
        all.across.messages += levels.across.messages;
      }
      ASSERT_EQ(all.inside.bytes.value * inner, (inner - 1) * K);
      ASSERT_EQ(all.across.bytes.value * outer, (outer - 1) * K);
      ASSERT_EQ(all.across.messages, (outer - 1) * request.parts);
    });
  }
}

}  // namespace
}  // namespace weft
