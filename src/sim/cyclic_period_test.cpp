// The period that the search for an order computes, against the simulator's.
#include <gtest/gtest.h>

#include "planner/schedule/cyclic/list_order.hpp"
#include "planner/schedule/cyclic/period.hpp"
#include "planner/schedule/cyclic/test_cyclic_problems.hpp"
#include "sim/engine.hpp"
#include "sim/test_problems.hpp"

namespace weft::test {
namespace {

// The problem in these orders: queue 0 computes, the others are queues of transfers that share nothing; the turns of a
// link are waits of their own.
SimProblem simulated(const CyclicProblem& problem, const QueueOrders& orders) {
  TestProblem p;
  const std::int32_t rank = p.rank();
  std::vector<std::int32_t> id(problem.operations.size());
  const auto slot = [](std::int32_t index) { return static_cast<std::size_t>(index); };
  for (std::int32_t queue = 0; queue < problem.queues; ++queue) {
    for (std::int32_t i : orders.queues[slot(queue)]) {
      const auto ns = static_cast<std::int64_t>(problem.operations[slot(i)].ns);
      id[slot(i)] = queue == 0 ? p.compute(rank, ns) : p.transfer(rank, {.moving = ns, .queue = queue});
    }
  }
  for (const CyclicEdge& edge : problem.edges) {
    p.wait(id[slot(edge.to)], id[slot(edge.from)], static_cast<std::int8_t>(edge.distance));
  }
  for (const auto& order : orders.links) {
    for (std::size_t k = 0; k < order.size(); ++k) {
      const std::int32_t before = k > 0 ? order[k - 1] : order.back();
      p.wait(id[slot(order[k])], id[slot(before)], static_cast<std::int8_t>(k > 0 ? 0 : 1));
    }
  }
  return p.build();
}

TEST(CyclicPeriodProperty, IsTheSimulatorsStepTime) {
  CyclicProblems random(41);
  int settled = 0;
  for (int round = 0; round < 400; ++round) {
    CyclicProblem p = random.any(14);
    if (round % 3 == 0) random.share_link(p);
    // A last operation that waits for all, and the next iteration for it: no queue may run ahead of the others without
    // end, which the simulator refuses.
    const auto count = static_cast<std::int32_t>(p.operations.size());
    if (round % 2 == 0) {
      p.operations.push_back({0, random.duration()});
      for (std::int32_t i = 0; i < count; ++i) {
        p.edges.push_back({i, count, 0});
        p.edges.push_back({count, i, 1});
      }
    } else {
      // Or every operation waits for all of the one before: they overlap less, but in their own orders.
      for (std::int32_t i = 0; i < count; ++i) {
        p.edges.push_back({i, random.below(count), 1});
        for (std::int32_t j = 0; j < count; ++j) {
          if (p.operations[i].queue != p.operations[j].queue) {
            p.edges.push_back({i, j, 1});
          }
        }
      }
    }
    const OrderFound order = list_order(p);
    const SimResult result = simulate(simulated(p, order.orders), {.max_iterations = 40});
    if (!result.repeats) continue;
    ++settled;
    ASSERT_NEAR(period(p, order.orders).value(), result.period_ns, 1e-9 * result.period_ns) << "round " << round;
  }
  EXPECT_GT(settled, 350);
}

}  // namespace
}  // namespace weft::test
