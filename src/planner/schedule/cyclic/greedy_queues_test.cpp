#include "planner/schedule/cyclic/greedy_queues.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft {
namespace {

// Compute has a chain, 0 and 1, and what two transfers of 100 ns wait for: 2 and 3.
CyclicProblem two_transfers(double before_second_ns) {
  return {.queues = 2,
          .operations = {{0, 40}, {0, 20}, {0, 10}, {0, before_second_ns}, {1, 100}, {1, 100}},
          .edges = {{0, 1, 0}, {2, 4, 0}, {3, 5, 0}}};
}

std::vector<std::int32_t> order_of_compute(const CyclicProblem& p, bool feeds_busiest) {
  const CyclicGraph graph(p);
  std::vector<std::int32_t> order = GreedyQueues(graph, {6, 5, 4, 3, 2, 1}, feeds_busiest).run_iteration();
  std::erase_if(order, [&](std::int32_t i) { return graph.queue(i) != 0; });
  return order;
}

TEST(GreedyQueues, TakeTheMostUrgent) {
  EXPECT_EQ(order_of_compute(two_transfers(50), false), (std::vector<std::int32_t>{0, 1, 2, 3}));
}

// The first transfer ends at 110 ns. At 50 ns, when operation 0 has ended, 60 ns are left of it: enough for a way of 50
// ns to begin later, not for one of 70 ns.
TEST(GreedyQueues, FeedTheBusiestResourceWhereItWouldRunDry) {
  EXPECT_EQ(order_of_compute(two_transfers(50), true), (std::vector<std::int32_t>{2, 0, 1, 3}));
  EXPECT_EQ(order_of_compute(two_transfers(70), true), (std::vector<std::int32_t>{2, 0, 3, 1}));
}

// Where compute is the busiest, the most urgent is taken.
TEST(GreedyQueues, FeedNothingWhereComputeIsBusiest) {
  const CyclicProblem p{.queues = 2, .operations = {{0, 40}, {0, 20}, {1, 5}}, .edges = {{1, 2, 0}}};
  const CyclicGraph graph(p);
  EXPECT_EQ(GreedyQueues(graph, {3, 2, 1}, true).run_iteration().front(), 0);
}

}  // namespace
}  // namespace weft
