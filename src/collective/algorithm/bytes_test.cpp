// Bytes that every flat algorithm sends, against formulas derived here from what the algorithm does. K is the whole
// buffer, N the ranks; bytes are compared multiplied by N (or what else divides), so that all is exact.
#include <algorithm>
#include <bit>

#include "collective/algorithm/test_bytes.hpp"

namespace weft {
namespace {

using enum Collective;

std::int64_t most_sent(const ProgramTraffic& traffic) {
  std::int64_t most = 0;
  for (const MessageCount& rank : traffic.sent) most = std::max(most, rank.bytes.value);
  return most;
}

// Every rank sends numerator(N) / N of the buffer.
template <class Numerator>
void expect_each(Algorithm algorithm, Collective kind, const Numerator& numerator) {
  check_all(algorithm, kind, [&](const ProgramTraffic& traffic, const ProgramRequest& request) {
    for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
      if (request.servers > 0) continue;
      ASSERT_EQ(sent(traffic, rank) * request.ranks, numerator(request.ranks) * K);
    }
  });
}

// All ranks but one send K: the root of a reduce (which only receives).
void expect_all_but_the_root_send_it_once(Algorithm algorithm, Collective kind) {
  check_all(algorithm, kind, [&](const ProgramTraffic& traffic, const ProgramRequest& request) {
    for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
      ASSERT_EQ(sent(traffic, rank), rank == request.root ? 0 : K);
    }
  });
}

// The rank's number counted from the root.
std::int64_t from_root(const ProgramRequest& request, std::int64_t rank) {
  return (rank - request.root + request.ranks) % request.ranks;
}

std::int64_t power_below(std::int64_t n) {
  std::int64_t power = 1;
  while (2 * power <= n) power *= 2;
  return power;
}

std::int64_t log2_of(std::int64_t power) {
  std::int64_t log = 0;
  while ((std::int64_t{1} << log) < power) ++log;
  return log;
}

// N-1 hops, one slice of K/N each; all_reduce does it twice.
TEST(RingBytes, AreNMinusOneNthsPerPass) {
  for (const Algorithm ring : {Algorithm::ring, Algorithm::bidirectional_ring}) {
    expect_each(ring, all_gather, [](std::int64_t n) { return n - 1; });
    expect_each(ring, reduce_scatter, [](std::int64_t n) { return n - 1; });
    expect_each(ring, all_reduce, [](std::int64_t n) { return 2 * (n - 1); });
  }
}

TEST(RingBytes, OfAChainAreTheBufferOncePerLink) {
  expect_all_but_the_root_send_it_once(Algorithm::ring, reduce);
  check_all(Algorithm::ring, broadcast, [](const ProgramTraffic& traffic, const ProgramRequest& request) {
    for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
      const bool last = from_root(request, rank) == request.ranks - 1;
      ASSERT_EQ(sent(traffic, rank), last ? 0 : K);
    }
  });
}

TEST(BidirectionalRingBytes, AreHalfInEachDirection) {
  check_all(Algorithm::bidirectional_ring, all_reduce,
            [](const ProgramTraffic& traffic, const ProgramRequest& request) {
              const std::int64_t n = request.ranks;
              if (n == 2) return;  // both neighbours are one
              for (std::int64_t rank = 0; rank < n; ++rank) {
                ASSERT_EQ(traffic.between.at({rank, (rank + 1) % n}).bytes.value * n, (n - 1) * K);
                ASSERT_EQ(traffic.between.at({rank, (rank + n - 1) % n}).bytes.value * n, (n - 1) * K);
              }
            });
}

// Rank v (from the root) has a child v + 2^j for every 2^j below its lowest bit, as long as that is below N. The root
// has one for every power of two below N.
TEST(BinomialTreeBytes, OfABroadcastAreTheBufferPerChild) {
  check_all(Algorithm::binomial_tree, broadcast, [](const ProgramTraffic& traffic, const ProgramRequest& request) {
    for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
      const std::int64_t v = from_root(request, rank);
      std::int64_t children = 0;
      for (std::int64_t step = 1; v + step < request.ranks && (v & step) == 0; step *= 2) ++children;
      ASSERT_EQ(sent(traffic, rank), children * K);
    }
    ASSERT_EQ(traffic.total.bytes.value, (request.ranks - 1) * K);
  });
  expect_all_but_the_root_send_it_once(Algorithm::binomial_tree, reduce);
}

// A slice travels over as many edges as its rank has bits set, counted from the root.
TEST(BinomialTreeBytes, OfGatherAndScatterAreTheSliceTimesItsDepth) {
  for (const Collective kind : {gather, scatter}) {
    check_all(Algorithm::binomial_tree, kind, [&](const ProgramTraffic& traffic, const ProgramRequest& request) {
      std::int64_t depths = 0;
      for (std::int64_t v = 0; v < request.ranks; ++v) depths += std::popcount(static_cast<std::uint64_t>(v));
      ASSERT_EQ(traffic.total.bytes.value * request.ranks, depths * K);
      // One message per edge; where the root's buffer ends, one is cut in two (and so may be each of its parts).
      ASSERT_GE(traffic.total.messages, (request.ranks - 1) * request.parts);
      ASSERT_LE(traffic.total.messages, (request.ranks - 1) * request.parts + (request.root == 0 ? 0 : 1));
      if (kind == scatter) {
        ASSERT_EQ(sent(traffic, request.root) * request.ranks, (request.ranks - 1) * K);
      }
    });
  }
}

TEST(BinomialTreeBytes, OfAnAllReduceAreThoseOfReduceAndBroadcast) {
  check_all(Algorithm::binomial_tree, all_reduce, [](const ProgramTraffic& traffic, const ProgramRequest& request) {
    ASSERT_EQ(traffic.total.bytes.value, 2 * (request.ranks - 1) * K);
    ASSERT_EQ(sent(traffic, request.root), log2_of(request.ranks) * K);  // its children, in the broadcast
  });
}

// K/2 in each tree: up once to the parent; down to two children where a rank is an inner node, which it is in one tree
// at most. The root serves the top of each tree.
TEST(TreeBytes, AreAtMostTheBufferEachWay) {
  expect_all_but_the_root_send_it_once(Algorithm::tree, reduce);
  check_all(Algorithm::tree, broadcast, [](const ProgramTraffic& traffic, const ProgramRequest& request) {
    ASSERT_EQ(traffic.total.bytes.value, (request.ranks - 1) * K);
    ASSERT_EQ(sent(traffic, request.root), K);
    ASSERT_EQ(most_sent(traffic), K);
  });
  check_all(Algorithm::tree, all_reduce, [](const ProgramTraffic& traffic, const ProgramRequest& request) {
    ASSERT_EQ(traffic.total.bytes.value, 2 * (request.ranks - 1) * K);
    ASSERT_EQ(sent(traffic, request.root), K);
    ASSERT_LE(most_sent(traffic), 2 * K);
  });
}

TEST(TreeBytes, NoRankIsAnInnerNodeOfBothTrees) {
  for (const std::int64_t ranks : {2, 3, 4, 5, 6, 7, 8, 9, 16, 33}) {
    const Program program = make_program({.algorithm = Algorithm::tree, .kind = broadcast, .ranks = ranks, .root = 1});
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      std::int64_t children[2] = {0, 0};
      for (const ThreadBlock& block : program.ranks[rank].blocks) {
        if (block.send_to >= 0) ++children[block.channel];
      }
      EXPECT_LE(children[0], 2);
      EXPECT_LE(children[1], 2);
      if (rank != 1) {
        EXPECT_TRUE(children[0] == 0 || children[1] == 0) << rank << " of " << ranks;
      }
    }
  }
}

// N = p + e, p a power of two. A worker whose aligned block of 2^k workers covers c ranks sends c slices in round k.
// The e first workers cover two ranks each. Worker 0: 2^k + min(2^k, e); the last: 2^k + max(0, e - (p - 2^k)).
// A folded rank gives its slice away and is sent the N-1 others.
TEST(RecursiveDoublingBytes, OfAllGatherGrowWithWhatAWorkerCovers) {
  check_all(Algorithm::recursive_doubling, all_gather,
            [](const ProgramTraffic& traffic, const ProgramRequest& request) {
              const std::int64_t n = request.ranks;
              const std::int64_t p = power_below(n);
              const std::int64_t e = n - p;
              std::int64_t first = 0;
              std::int64_t last = 0;
              for (std::int64_t block = 1; block < p; block *= 2) {
                first += block + std::min(block, e);
                last += block + std::max<std::int64_t>(0, e - (p - block));
              }
              ASSERT_EQ(sent(traffic, 0) * n, (first + (e > 0 ? n - 1 : 0)) * K);
              if (e < p - 1) {
                ASSERT_EQ(sent(traffic, n - 1) * n, last * K);
              }
              if (e > 0) {
                ASSERT_EQ(sent(traffic, 1) * n, K);
              }
              if (e == 0) {
                ASSERT_EQ(traffic.total.bytes.value, (n - 1) * K);
              }
            });
}

// log2 p rounds of K; a folded rank sends K to its neighbour and is sent K.
TEST(RecursiveDoublingBytes, OfAllReduceAreTheBufferInEveryRound) {
  check_all(Algorithm::recursive_doubling, all_reduce,
            [](const ProgramTraffic& traffic, const ProgramRequest& request) {
              const std::int64_t p = power_below(request.ranks);
              const std::int64_t e = request.ranks - p;
              for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
                const bool paired = rank < 2 * e;
                const bool folded = paired && rank % 2 == 1;
                ASSERT_EQ(sent(traffic, rank), folded ? K : (log2_of(p) + (paired ? 1 : 0)) * K);
              }
            });
}

// A worker sends all slices but those that it covers, once: N-1 of N, or N-2 and one more to its folded neighbour. A
// folded rank sends all.
TEST(RecursiveHalvingBytes, OfReduceScatterAreThoseOfARing) {
  check_all(Algorithm::recursive_halving, reduce_scatter,
            [](const ProgramTraffic& traffic, const ProgramRequest& request) {
              const std::int64_t n = request.ranks;
              const std::int64_t e = n - power_below(n);
              for (std::int64_t rank = 0; rank < n; ++rank) {
                const bool folded = rank < 2 * e && rank % 2 == 1;
                ASSERT_EQ(sent(traffic, rank) * n, (folded ? n : n - 1) * K);
              }
            });
}

// Rabenseifner: (p-1)/p K halving, as much doubling; K between folded ranks and their neighbours, each way.
TEST(RecursiveHalvingBytes, OfAllReduceAreTwicePMinusOnePths) {
  check_all(Algorithm::recursive_halving, all_reduce, [](const ProgramTraffic& traffic, const ProgramRequest& request) {
    const std::int64_t p = power_below(request.ranks);
    const std::int64_t e = request.ranks - p;
    for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
      const bool paired = rank < 2 * e;
      const bool folded = paired && rank % 2 == 1;
      ASSERT_EQ(sent(traffic, rank) * p, folded ? p * K : 2 * (p - 1) * K + (paired ? p * K : 0));
    }
  });
}

// all_gather receives every slice once. all_to_all: pieces with bit k of their distance j set travel in round k; of
// 0..N-1 these are floor(N / 2^(k+1)) 2^k + max(0, N mod 2^(k+1) - 2^k).
TEST(BruckBytes, AreCountedByBitsOfTheDistance) {
  expect_each(Algorithm::bruck, all_gather, [](std::int64_t n) { return n - 1; });
  expect_each(Algorithm::bruck, all_to_all, [](std::int64_t n) {
    std::int64_t pieces = 0;
    for (std::int64_t bit = 1; bit < n; bit *= 2) {
      pieces += n / (2 * bit) * bit + std::max<std::int64_t>(0, n % (2 * bit) - bit);
    }
    return pieces;
  });
}

TEST(PairwiseAndDirectBytes, AreOneSlicePerPair) {
  for (const Algorithm algorithm : {Algorithm::pairwise, Algorithm::direct}) {
    for (const Collective kind : {all_gather, reduce_scatter, all_to_all}) {
      expect_each(algorithm, kind, [](std::int64_t n) { return n - 1; });
    }
  }
}

TEST(DirectBytes, AreWhatEachReceiverNeeds) {
  expect_each(Algorithm::direct, all_reduce, [](std::int64_t n) { return n * (n - 1); });
  expect_all_but_the_root_send_it_once(Algorithm::direct, reduce);
  const auto at_root = [](Collective kind, auto root_sends, auto others_send) {
    check_all(Algorithm::direct, kind, [&](const ProgramTraffic& traffic, const ProgramRequest& request) {
      for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
        const std::int64_t nths = rank == request.root ? root_sends(request.ranks) : others_send(request.ranks);
        ASSERT_EQ(sent(traffic, rank) * request.ranks, nths * K);
      }
    });
  };
  const auto none = [](std::int64_t) { return 0; };
  at_root(broadcast, [](std::int64_t n) { return n * (n - 1); }, none);
  at_root(scatter, [](std::int64_t n) { return n - 1; }, none);
  at_root(gather, none, [](std::int64_t) { return 1; });
  for (const ProgramRequest& request : every_request(2)) {
    if (request.kind == send_recv) {
      EXPECT_EQ(sent(traffic_of(request), request.root), K);
    }
  }
}

TEST(ReduceBroadcastBytes, AreAllAtTheRoot) {
  check_all(Algorithm::reduce_broadcast, all_reduce, [](const ProgramTraffic& traffic, const ProgramRequest& request) {
    for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
      ASSERT_EQ(sent(traffic, rank), rank == request.root ? (request.ranks - 1) * K : K);
    }
  });
}

}  // namespace
}  // namespace weft
