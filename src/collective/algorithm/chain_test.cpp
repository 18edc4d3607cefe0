// How many messages follow each other, against formulas in N and the parts p. Rings send everything over one
// connection; a tree of depth d with p parts is done after d + p - 1.
#include <gtest/gtest.h>

#include "collective/algorithm/test_requests.hpp"
#include "collective/program_traffic.hpp"

namespace weft {
namespace {

using enum Collective;

std::int64_t floor_log2(std::int64_t n) {
  std::int64_t log = 0;
  while ((std::int64_t{2} << log) <= n) ++log;
  return log;
}

std::int64_t ceil_log2_of(std::int64_t n) {
  std::int64_t log = 0;
  while ((std::int64_t{1} << log) < n) ++log;
  return log;
}

// N = p + e: one message into each of the e first workers and one out again in the end. Between workers i and j go as
// many messages as their numbers differ in bits, and both are among the first e and differ in all bits only where
// e > p/2 (p/2 and p/2 - 1). Otherwise the longest way begins or ends at a rank without a fold.
std::int64_t folded_log2(std::int64_t n) {
  const std::int64_t p = std::int64_t{1} << floor_log2(n);
  const std::int64_t e = n - p;
  return floor_log2(n) + (e == 0 ? 0 : 2 * e > p ? 2 : 1);
}

template <class Formula>
void expect_chain(Algorithm algorithm, Collective kind, std::int64_t parts, const Formula& formula) {
  for (const std::int64_t ranks : {2, 3, 4, 5, 6, 7, 8, 9, 16}) {
    for (const ProgramRequest& request : every_request(ranks)) {
      if (request.algorithm != algorithm || request.kind != kind || request.parts != parts) continue;
      const Program program = make_program(request);
      const ProgramTraffic traffic = program_traffic(program, even_sizes(program.spec, 1), Bytes{4});
      EXPECT_EQ(traffic.longest_chain, formula(request)) << in_words(request);
    }
  }
}

TEST(Chains, OfRingsAreAllTheirHops) {
  for (const std::int64_t parts : {1, 3}) {
    for (const Algorithm ring : {Algorithm::ring, Algorithm::bidirectional_ring}) {
      const auto once = [](const ProgramRequest& r) { return (r.ranks - 1) * r.parts; };
      expect_chain(ring, all_gather, parts, once);
      expect_chain(ring, reduce_scatter, parts, once);
      expect_chain(ring, all_reduce, parts, [&](const ProgramRequest& r) { return 2 * once(r); });
    }
    for (const Collective kind : {broadcast, reduce}) {
      expect_chain(Algorithm::ring, kind, parts, [](const ProgramRequest& r) { return r.ranks - 1 + r.parts - 1; });
    }
  }
}

TEST(Chains, OfTreesAreTheirDepthAndTheParts) {
  for (const std::int64_t parts : {1, 3}) {
    for (const Collective kind : {broadcast, reduce}) {
      expect_chain(Algorithm::tree, kind, parts,
                   [](const ProgramRequest& r) { return ceil_log2_of(r.ranks) + r.parts - 1; });
    }
    expect_chain(Algorithm::tree, all_reduce, parts,
                 [](const ProgramRequest& r) { return 2 * ceil_log2_of(r.ranks) + r.parts - 1; });
  }
}

// Downwards a rank serves its children in turn: ceil(log2 N). Upwards children send when they are ready, and the depth
// of the tree, the most bits set in a number below N, is floor(log2 N). Where the root's buffer ends inside a subtree,
// that subtree travels as two messages: one more, at most.
TEST(Chains, OfBinomialTrees) {
  expect_chain(Algorithm::binomial_tree, broadcast, 1, [](const ProgramRequest& r) { return ceil_log2_of(r.ranks); });
  expect_chain(Algorithm::binomial_tree, reduce, 1, [](const ProgramRequest& r) { return floor_log2(r.ranks); });
  for (const Collective kind : {all_reduce, barrier}) {
    expect_chain(Algorithm::binomial_tree, kind, 1,
                 [](const ProgramRequest& r) { return floor_log2(r.ranks) + ceil_log2_of(r.ranks); });
  }
}

TEST(Chains, OfRecursiveAlgorithmsAndBruckAreLogarithmic) {
  const auto folded = [](const ProgramRequest& r) { return folded_log2(r.ranks); };
  expect_chain(Algorithm::recursive_doubling, all_reduce, 1, folded);
  expect_chain(Algorithm::recursive_doubling, barrier, 1, folded);
  expect_chain(Algorithm::recursive_halving, reduce_scatter, 1, folded);
  // Into the fold, to the worker with all bits different, back, and out of the fold.
  expect_chain(Algorithm::recursive_halving, all_reduce, 1, [](const ProgramRequest& r) {
    return 2 * floor_log2(r.ranks) + (floor_log2(r.ranks) == ceil_log2_of(r.ranks) ? 0 : 2);
  });
  expect_chain(Algorithm::bruck, barrier, 1, [](const ProgramRequest& r) { return ceil_log2_of(r.ranks); });
  // Of the ceil(log2 N) rounds the last one needs only what it sends. With p the largest power of two below N,
  // all_gather sends its first N-p slices, which were there after ceil(log2(N-p)) rounds; all_to_all pieces p + j with
  // j < N-p, which have travelled for the bits of j.
  for (const Collective kind : {all_gather, all_to_all}) {
    expect_chain(Algorithm::bruck, kind, 1, [](const ProgramRequest& r) {
      const std::int64_t rounds = ceil_log2_of(r.ranks);
      const std::int64_t rest = r.ranks - (std::int64_t{1} << (rounds - 1));
      return std::max(rounds - 1, ceil_log2_of(rest) + 1);
    });
  }
}

TEST(Chains, OfPairsAreOneAtOnceOrAllInTurn) {
  for (const Collective kind : {all_gather, reduce_scatter, all_to_all}) {
    expect_chain(Algorithm::pairwise, kind, 1, [](const ProgramRequest& r) { return r.ranks - 1; });
  }
  for (const Collective kind :
       {broadcast, reduce, gather, scatter, all_gather, reduce_scatter, all_reduce, all_to_all, send_recv, barrier}) {
    expect_chain(Algorithm::direct, kind, 1, [](const ProgramRequest&) { return 1; });
  }
  expect_chain(Algorithm::reduce_broadcast, all_reduce, 1, [](const ProgramRequest&) { return 2; });
  expect_chain(Algorithm::parameter_server, all_reduce, 1, [](const ProgramRequest&) { return 2; });
}

// One message inside, a ring across, one message inside.
TEST(Chains, OfHierarchicalAllReduceAreARingOfGroups) {
  expect_chain(Algorithm::hierarchical, all_reduce, 1, [](const ProgramRequest& r) {
    const std::int64_t outer = r.ranks / r.inner;
    return 2 * (outer - 1) + (r.inner > 1 ? 2 : 0);
  });
}

}  // namespace
}  // namespace weft
