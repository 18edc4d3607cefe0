// Moves that are kept only where they fit, against searching the period of the whole sequence anew.
#include "planner/schedule/cyclic/fitted_order.hpp"

#include <gtest/gtest.h>

#include "planner/schedule/cyclic/period.hpp"
#include "planner/schedule/cyclic/test_cyclic_problems.hpp"

namespace weft {
namespace {

using test::CyclicProblems;

TEST(FittedOrderProperty, KeepsAMoveExactlyWhereThePeriodAllowsIt) {
  CyclicProblems random(51);
  int kept = 0, undone = 0;
  for (int round = 0; round < 600; ++round) {
    CyclicProblem p = random.any(round % 10 == 0 ? 60 : 12);
    if (round % 3 == 0) random.share_link(p);
    const CyclicGraph graph(p);
    const auto count = static_cast<std::int32_t>(graph.size());
    PeriodSearch periods(graph);
    std::vector<std::int32_t> sequence = graph.any_sequence().value();
    double current = periods.find(sequence);
    FittedOrder fitted(graph);
    fitted.set(sequence, periods.ends());
    for (int k = 0; k < 100; ++k) {
      const SequenceMove move{random.below(count), random.below(count), random.below(2) == 0, random.below(2) == 0};
      std::vector<std::int32_t> moved = sequence;
      const bool possible = SequenceMover(graph).apply(move, moved);
      // A little longer, and no limit that rounding could decide.
      const double limit = current * (1.0001 + 0.001 * random.below(50));
      const double then = PeriodSearch(graph).find(moved);
      const bool expected = possible && then <= limit;
      ASSERT_EQ(fitted.try_move(move, limit), expected) << "round " << round << ", move " << k;
      if (possible) (expected ? kept : undone) += 1;
      if (expected) {
        sequence = moved;
        current = limit;  // the end times are those of this limit
      }
      ASSERT_EQ(fitted.sequence(), sequence) << "round " << round << ", move " << k;
      if (k % 20 == 19) {
        current = PeriodSearch(graph).find(sequence);
        PeriodSearch settled(graph);
        settled.find(sequence);
        fitted.set(sequence, settled.ends());
      }
    }
  }
  EXPECT_GT(kept, 1000);
  EXPECT_GT(undone, 1000);
}

}  // namespace
}  // namespace weft
