// Branch and bound against every permutation of every queue.
#include "planner/schedule/cyclic/exact_order.hpp"

#include <gtest/gtest.h>

#include "planner/schedule/cyclic/period.hpp"
#include "planner/schedule/cyclic/test_cyclic_oracle.hpp"
#include "planner/schedule/cyclic/test_cyclic_problems.hpp"

namespace weft {
namespace {

using test::CyclicProblems;

void expect_shortest(const CyclicProblem& p, int round) {
  const OrderFound exact = exact_order(p);
  const double expected = test::shortest_of_all_orders(p);
  ASSERT_NEAR(exact.period_ns, expected, 1e-9 * expected) << "round " << round;
  // The orders it names have that period.
  const auto theirs = test::largest_cycle_ratio(p, exact.orders);
  ASSERT_TRUE(theirs.has_value()) << "round " << round;
  ASSERT_NEAR(*theirs, expected, 1e-9 * expected) << "round " << round;
}

TEST(ExactOrder, IsTheShortestOfAllPermutations) {
  CyclicProblems random(21);
  for (int round = 0; round < 1500; ++round) expect_shortest(random.any(7), round);
}

TEST(ExactOrder, IsTheShortestWhereQueuesShareALink) {
  CyclicProblems random(22);
  for (int round = 0; round < 300; ++round) {
    CyclicProblem p = random.any(6);
    random.share_link(p);
    expect_shortest(p, round);
  }
}

TEST(ExactOrder, IsTheShortestWithFixedOrdersEqualAndEmptyOperations) {
  CyclicProblems random(23);
  for (int round = 0; round < 1000; ++round) {
    // Chains of like operations, so that some of them cannot be told apart.
    CyclicProblem p = random.sparse(4 + random.below(3));
    for (CyclicOperation& operation : p.operations) {
      operation.ns = 10 * random.below(3);
      operation.fixed_order = false;
    }
    if (round % 2 == 0) p.edges.clear();
    for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(p.operations.size()); ++i) {
      if (random.below(3) == 0) p.edges.push_back({i, i + 1, 1});
    }
    // Fixed in the order of indices; where that contradicts the data there is nothing to find.
    CyclicProblem fixed = p;
    for (CyclicOperation& operation : fixed.operations) operation.fixed_order = random.below(3) == 0;
    expect_shortest(CyclicGraph(fixed).any_sequence() ? fixed : p, round);
  }
}

}  // namespace
}  // namespace weft
