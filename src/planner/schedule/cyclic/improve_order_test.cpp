// Local search over orders: what it may never do, and how near it comes to the best orders of small problems.
#include "planner/schedule/cyclic/improve_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bound/bound.hpp"
#include "planner/schedule/cyclic/exact_order.hpp"
#include "planner/schedule/cyclic/period.hpp"
#include "planner/schedule/cyclic/sequence_moves.hpp"
#include "planner/schedule/cyclic/test_cyclic_oracle.hpp"
#include "planner/schedule/cyclic/test_cyclic_problems.hpp"

namespace weft {
namespace {

using test::CyclicProblems;

// Every operation once, none before what it waits for within the iteration.
bool is_sequence(const CyclicProblem& p, const std::vector<std::int32_t>& sequence) {
  std::vector<int> place(p.operations.size(), -1);
  for (std::size_t k = 0; k < sequence.size(); ++k) place.at(sequence[k]) = static_cast<int>(k);
  for (int where : place) {
    if (where < 0) return false;
  }
  for (const CyclicEdge& edge : p.edges) {
    if (edge.distance == 0 && place[edge.from] > place[edge.to]) {
      return false;
    }
  }
  return sequence.size() == place.size();
}

// Some sequence: the problem's own, with operations moved.
std::vector<std::int32_t> moved_sequence(const CyclicProblem& p, const CyclicGraph& graph, CyclicProblems& random) {
  SequenceMover mover(graph);
  std::vector<std::int32_t> sequence = graph.any_sequence().value();
  const auto count = static_cast<std::int32_t>(p.operations.size());
  for (int k = 0; k < 20; ++k) {
    mover.apply({random.below(count), random.below(count), random.below(2) == 0, random.below(2) == 0}, sequence);
  }
  return sequence;
}

TEST(SequenceMover, MovesNothingBeforeWhatItWaitsFor) {
  CyclicProblems random(31);
  int moved = 0, refused = 0;
  for (int round = 0; round < 2000; ++round) {
    CyclicProblem p = random.any(14);
    if (round % 4 == 0) random.share_link(p);
    const CyclicGraph graph(p);
    std::vector<std::int32_t> sequence = moved_sequence(p, graph, random);
    const std::vector<std::int32_t> before = sequence;
    const auto count = static_cast<std::int32_t>(p.operations.size());
    const SequenceMove move{random.below(count), random.below(count), random.below(2) == 0, random.below(2) == 0};
    const bool applied = SequenceMover(graph).apply(move, sequence);
    (applied ? moved : refused) += 1;
    ASSERT_TRUE(is_sequence(p, sequence)) << "round " << round;
    if (!applied) {
      ASSERT_EQ(sequence, before) << "round " << round;
      continue;
    }
    // The two have changed places.
    const auto place = [&](std::int32_t i) { return std::find(sequence.begin(), sequence.end(), i); };
    ASSERT_EQ(place(move.anchor) < place(move.operation), move.behind) << "round " << round;
  }
  EXPECT_GT(moved, 300);
  EXPECT_GT(refused, 300);
}

TEST(SequenceMover, CanLeaveTheOrderOfOtherQueues) {
  // Queue 0: 0, 1. Queue 1: 2 (waits for 0), 3. Behind 1, operation 0 takes 2 along; with the others kept, 3 as well.
  const CyclicProblem p{.queues = 2, .operations = {{0, 1}, {0, 1}, {1, 1}, {1, 1}}, .edges = {{0, 2, 0}}};
  const CyclicGraph graph(p);
  std::vector<std::int32_t> by_data{0, 2, 3, 1}, kept = by_data;
  EXPECT_TRUE(SequenceMover(graph).apply({0, 1, true, false}, by_data));
  EXPECT_EQ(by_data, (std::vector<std::int32_t>{3, 1, 0, 2}));
  EXPECT_TRUE(SequenceMover(graph).apply({0, 1, true, true}, kept));
  EXPECT_EQ(kept, (std::vector<std::int32_t>{1, 0, 2, 3}));
}

TEST(ImproveOrder, HidesAReductionBehindTheWeightGradientThatNobodyWaitsFor) {
  // Queue 0: backward of two layers (weight gradients 0 of the upper, 1 of the lower), queue 1: reduction 2 of the
  // lower, which the next step's first operation waits for. 1 -> 2 -> next 1 takes 15, the worker 20: with 1 before 0
  // the step takes 20; with 0 before 1 as well, since both orders leave the worker busy. A barrier 3 that waits for 2
  // and 0 tells them apart: 1, (2 beside 0), 3 takes 5 + 15 + 2, the other order 15 + 5 + 10 + 2.
  const CyclicProblem p{.queues = 2,
                        .operations = {{0, 15}, {0, 5}, {1, 10}, {0, 2}},
                        .edges = {{1, 2, 0}, {2, 3, 0}, {0, 3, 0}, {3, 0, 1}, {3, 1, 1}}};
  const QueueOrders late{{{0, 1, 3}, {2}}, {}};
  ASSERT_EQ(period(p, late), 32);
  const Improved improved = improve_order(p, late);
  EXPECT_EQ(improved.period_ns, 22);
  EXPECT_EQ(improved.orders, (QueueOrders{{{1, 0, 3}, {2}}, {}}));
  EXPECT_TRUE(improved.optimal);  // the worker's work
}

TEST(ImproveOrderProperty, NeverWorseThanItsInputAndWhatItSays) {
  CyclicProblems random(32);
  for (int round = 0; round < 200; ++round) {
    CyclicProblem p = random.any(10);
    if (round % 3 == 0) random.share_link(p);
    const CyclicGraph graph(p);
    const QueueOrders orders = graph.orders_of(moved_sequence(p, graph, random));
    const double before = *period(p, orders);
    for (std::int64_t visits : {0, 100, 5000}) {
      const Improved improved = improve_order(p, orders, {.visits = visits, .seed = 3});
      ASSERT_LE(improved.period_ns, before) << "round " << round;
      const auto theirs = test::largest_cycle_ratio(p, improved.orders);
      ASSERT_TRUE(theirs.has_value()) << "round " << round;
      ASSERT_NEAR(improved.period_ns, *theirs, 1e-9 * *theirs) << "round " << round;
      if (!improved.optimal) continue;
      ASSERT_NEAR(improved.period_ns, exact_order(p).period_ns, 1e-9 * before) << "round " << round;
    }
  }
}

TEST(ImproveOrderProperty, TheSameSeedGivesTheSameOrders) {
  CyclicProblems random(33);
  for (int round = 0; round < 20; ++round) {
    const CyclicProblem p = random.any(80);
    const ImproveOptions options{.visits = 50'000, .seed = static_cast<std::uint32_t>(round)};
    const Improved once = plan_order(p, options), again = plan_order(p, options);
    EXPECT_EQ(once.orders, again.orders);
    EXPECT_EQ(once.period_ns, again.period_ns);
    EXPECT_EQ(once.visits, again.visits);
  }
}

TEST(ImproveOrderProperty, KeepsFixedOrders) {
  CyclicProblems random(34);
  int kept = 0;
  for (int round = 0; round < 100; ++round) {
    CyclicProblem fixed = random.training(12, round % 2 == 0);
    for (CyclicOperation& operation : fixed.operations) operation.fixed_order = operation.queue > 0;
    if (!CyclicGraph(fixed).any_sequence()) continue;
    const QueueOrders orders = plan_order(fixed, {.visits = 5000}).orders;
    for (std::size_t queue = 1; queue < orders.queues.size(); ++queue) {
      EXPECT_TRUE(std::is_sorted(orders.queues[queue].begin(), orders.queues[queue].end())) << "round " << round;
    }
    ++kept;
  }
  EXPECT_GT(kept, 10);
}

// The planner must equal the best in 90 of 100 and be 1 % longer at most; it does better. Nothing was tuned on these.
TEST(PlannerGoal, EqualToTheBestOrdersInNearlyAllSmallProblems) {
  CyclicProblems random(20'260);
  constexpr int kProblems = 200;
  int equal = 0;
  double gaps = 0;
  for (int round = 0; round < kProblems; ++round) {
    CyclicProblem p = random.any(12);
    if (round % 5 == 0) random.share_link(p);
    const double best = exact_order(p).period_ns;
    const Improved found = plan_order(p, {.visits = 20'000, .seed = 7});
    ASSERT_GE(found.period_ns, best * (1 - 1e-9)) << "round " << round;
    equal += found.period_ns <= best * (1 + 1e-9) ? 1 : 0;
    gaps += found.period_ns / best - 1;
  }
  EXPECT_GE(equal, kProblems * 97 / 100);
  EXPECT_LE(gaps / kProblems, 0.005);
}

TEST(PlannerGoal, NoBestOrderIsBelowTheBound) {
  CyclicProblems random(20'261);
  int reached = 0;
  for (int round = 0; round < 500; ++round) {
    CyclicProblem p = random.any(12);
    if (round % 5 == 0) random.share_link(p);
    const double best = exact_order(p).period_ns;
    const double bound = lower_bound(CyclicProblems::bound_of(p)).period_ns;
    ASSERT_LE(bound, best * (1 + 1e-9)) << "round " << round;
    reached += bound >= best * (1 - 1e-9) ? 1 : 0;
  }
  EXPECT_GT(reached, 250);  // and it is no empty statement
}

}  // namespace
}  // namespace weft
