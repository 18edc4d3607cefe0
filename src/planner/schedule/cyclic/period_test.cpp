// The settled period of given orders, against all cycles of small graphs and against the recurrence itself.
#include "planner/schedule/cyclic/period.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "planner/schedule/cyclic/list_order.hpp"
#include "planner/schedule/cyclic/test_cyclic_oracle.hpp"
#include "planner/schedule/cyclic/test_cyclic_problems.hpp"

namespace weft {
namespace {

using test::CyclicProblems;

// A random order of each queue and link, seldom one that can run.
QueueOrders shuffled_orders(const CyclicProblem& p, CyclicProblems& random) {
  QueueOrders orders;
  orders.queues.resize(p.queues);
  orders.links.resize(p.links);
  std::vector<std::int32_t> all(p.operations.size());
  std::iota(all.begin(), all.end(), 0);
  for (std::size_t i = all.size(); i > 1; --i) {
    std::swap(all[i - 1], all[random.below(static_cast<std::int32_t>(i))]);
  }
  for (std::int32_t i : all) {
    const CyclicOperation& operation = p.operations[i];
    orders.queues[operation.queue].push_back(i);
    if (operation.link >= 0) orders.links[operation.link].push_back(i);
  }
  return orders;
}

TEST(CyclicPeriod, OfALoneQueueIsItsWork) {
  const CyclicProblem p{.queues = 1, .operations = {{0, 3}, {0, 4}}};
  EXPECT_EQ(period(p, {{{0, 1}}, {}}), 7);
  EXPECT_EQ(period_bound(p), 7);
}

TEST(CyclicPeriod, ACycleOverTwoIterationsCountsHalf) {
  // 0 -> 1 within the iteration, 1 -> 2 and 2 -> 0 into the next: 3 + 4 + 6 over two iterations.
  const CyclicProblem p{
      .queues = 3, .operations = {{0, 3}, {1, 4}, {2, 6}}, .edges = {{0, 1, 0}, {1, 2, 1}, {2, 0, 1}}};
  EXPECT_EQ(period(p, {{{0}, {1}, {2}}, {}}), 6.5);
  EXPECT_EQ(period_bound(p), 6.5);
}

TEST(CyclicPeriod, OrdersThatWaitForThemselvesHaveNone) {
  const CyclicProblem p{.queues = 1, .operations = {{0, 3}, {0, 4}}, .edges = {{0, 1, 0}}};
  EXPECT_EQ(period(p, {{{0, 1}}, {}}), 7);
  EXPECT_FALSE(period(p, {{{1, 0}}, {}}));
}

TEST(CyclicPeriod, AFixedOrderIsKept) {
  const CyclicProblem p{.queues = 1, .operations = {{0, 3, -1, true}, {0, 4}, {0, 1, -1, true}}};
  EXPECT_EQ(period(p, {{{1, 0, 2}}, {}}), 8);
  EXPECT_FALSE(period(p, {{{2, 1, 0}}, {}}));
}

TEST(CyclicPeriod, QueuesThatShareALinkTakeTurns) {
  // Two queues that nothing else ties together.
  CyclicProblem p{.queues = 2, .links = 1, .operations = {{0, 3}, {1, 4}}};
  EXPECT_EQ(period(p, {{{0}, {1}}, {{}}}), 4);
  p.operations[0].link = p.operations[1].link = 0;
  EXPECT_EQ(period(p, {{{0}, {1}}, {{0, 1}}}), 7);
}

TEST(CyclicPeriodProperty, IsTheLargestRatioOfAllCycles) {
  CyclicProblems random(11);
  int that_run = 0;
  for (int round = 0; round < 3000; ++round) {
    CyclicProblem p = random.any(7);
    if (round % 3 == 0) random.share_link(p);
    const QueueOrders orders = round % 2 == 0 ? shuffled_orders(p, random) : list_order(p).orders;
    const auto expected = test::largest_cycle_ratio(p, orders);
    const auto found = period(p, orders);
    ASSERT_EQ(found.has_value(), expected.has_value()) << "round " << round;
    if (!expected) continue;
    ++that_run;
    ASSERT_NEAR(*found, *expected, 1e-9 * *expected) << "round " << round;
    ASSERT_LE(period_bound(p), *expected * (1 + 1e-9)) << "round " << round;
  }
  EXPECT_GT(that_run, 1700);  // half of them are made to run
  EXPECT_LT(that_run, 2900);  // of the others many cannot
}

// Large graphs have too many cycles to list: run them instead. end(i, k) - end(i, 0) stays within a constant of
// k * period, so the mean over many iterations comes near it.
TEST(CyclicPeriodProperty, IsWhatARunOfManyIterationsTakesEach) {
  CyclicProblems random(12);
  for (int round = 0; round < 60; ++round) {
    CyclicProblem p = random.any(round < 50 ? 60 : 1500);
    if (round % 3 == 0) random.share_link(p);
    const OrderFound order = list_order(p);
    const double found = *period(p, order.orders);
    EXPECT_EQ(found, order.period_ns);
    const double mean = test::mean_iteration(p, order.orders, 400, 400);
    ASSERT_NEAR(mean, found, 0.005 * found) << "round " << round;
  }
}

TEST(CyclicPeriodProperty, OneSearchAfterTheOtherFindsTheSame) {
  CyclicProblems random(13);
  for (int round = 0; round < 40; ++round) {
    const CyclicProblem p = random.any(12);
    const CyclicGraph graph(p);
    PeriodSearch searches(graph);
    for (int change = 0; change < 50; ++change) {
      const auto sequence = graph.sequence_of(shuffled_orders(p, random));
      if (!sequence) continue;
      const double found = searches.find(*sequence);
      ASSERT_NEAR(found, PeriodSearch(graph).find(*sequence), 1e-9 * found);
      // The cycle it names has that ratio.
      if (searches.cycle().empty()) continue;
      double ns = 0;
      for (std::int32_t i : searches.cycle()) ns += graph.ns(i);
      const double iterations = ns / found;
      ASSERT_NEAR(iterations, std::round(iterations), 1e-9);
    }
  }
}

}  // namespace
}  // namespace weft
