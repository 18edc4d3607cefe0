// Step time across iterations: loop-carried edges, patterns of several iterations, steps that do not settle.
#include "sim/steady_state.hpp"

#include <gtest/gtest.h>

#include "sim/engine.hpp"
#include "sim/test_problems.hpp"

namespace weft::test {
namespace {

TEST(StepTime, ALoopCarriedTransferHidesBehindTheNextIterationsFirstOperation) {
  // Compute queue c 6, b 5, a 10; a -> transfer 8 -> b of the next iteration, so that only c lies beside it.
  //   iteration 0: c 0-6, b 6-11, a 11-21, transfer 21-29
  //   iteration 1: c 21-27, b 29-34, a 34-44, transfer 44-52
  //   iteration 2: c 44-50, b 52-57, ...
  // The cycle a, transfer, b decides: 10 + 8 + 5 = 23 (compute alone would be 21).
  TestProblem p;
  const auto rank = p.rank();
  const auto c = p.compute(rank, 6), b = p.compute(rank, 5), a = p.compute(rank, 10);
  const auto t = p.transfer(rank, {.moving = 8});
  p.wait(t, a);
  p.wait(b, t, 1);
  const SimResult result = simulate(p.build());
  EXPECT_TRUE(result.repeats);
  EXPECT_EQ(result.periods, 1);
  EXPECT_EQ(result.period_ns, 23);
  EXPECT_EQ(start_of(result, b), 6);
  EXPECT_EQ(start_of(result, b, 1), 29);
  EXPECT_EQ(start_of(result, b, 2), 52);
  EXPECT_EQ(start_of(result, c, 2), 44);
}

TEST(StepTime, APatternOfTwoIterationsIsRecognised) {
  // x(k+1) = y(k) + 1 + 2 and y(k+1) = x(k) + 1 + 3 + 2: starts (0,0), (3,6), (9,9), (12,15), (18,18): nine every two.
  TestProblem p;
  const auto r0 = p.rank(), r1 = p.rank();
  const auto x = p.compute(r0, 1), y = p.compute(r1, 1);
  const auto there = p.transfer(r0, {.moving = 3}), on = p.transfer(r0, {.moving = 2});
  const auto back = p.transfer(r1, {.moving = 2});
  p.wait(there, x);
  p.wait(on, there);
  p.wait(y, on, 1);
  p.wait(back, y);
  p.wait(x, back, 1);
  const SimResult result = simulate(p.build());
  EXPECT_TRUE(result.repeats);
  EXPECT_EQ(result.periods, 2);
  EXPECT_EQ(result.period_ns, 4.5);
  EXPECT_EQ(start_of(result, y, 1), 6);
  EXPECT_EQ(start_of(result, x, 2), 9);
}

TEST(StepTime, WhereNothingRepeatsItIsTheMeanOverTheLastHalfOfTheSlowestOperation) {
  // Two ranks that nothing joins: 10 and 12 a step. The relative start of the second grows for ever; a job of both
  // takes 12 a step.
  TestProblem p;
  p.compute(p.rank(), 10);
  p.compute(p.rank(), 12);
  const SimResult result = simulate(p.build());
  EXPECT_FALSE(result.repeats);
  EXPECT_GE(result.iterations.size(), 8u);
  EXPECT_EQ(result.period_ns, 12);
  EXPECT_EQ(result.steady_first + result.periods + 1, static_cast<std::int32_t>(result.iterations.size()));
  EXPECT_GE(2 * result.periods, 8);
}

TEST(StepTime, APatternOfFiveIterationsIsAveraged) {
  // Five ranks in a ring, each waits for its left neighbour's previous iteration: x_i(k+1) = x_{i-1}(k) + d, d = 1 but
  // 6 on the way from the last to the first (1, and five messages of 1). Every fifth step of each is the slow one: ten
  // in five iterations. Four are averaged, and of the slowest operation: (3 * 1 + 6) / 4.
  TestProblem p;
  std::vector<std::int32_t> x;
  for (int i = 0; i < 5; ++i) x.push_back(p.compute(p.rank(), 1));
  for (std::size_t i = 0; i < 4; ++i) p.wait(x[i + 1], x[i], 1);
  std::int32_t before = x[4];
  for (int i = 0; i < 5; ++i) {
    const auto hop = p.transfer(4, {.moving = 1});
    p.wait(hop, before);
    before = hop;
  }
  p.wait(x[0], before, 1);
  const SimResult result = simulate(p.build());
  EXPECT_FALSE(result.repeats);
  EXPECT_EQ(result.periods, 4);
  EXPECT_EQ(result.period_ns, 9.0 / 4);
}

TEST(StepTime, EqualStartsAreNotYetARepetitionWhileEndsStillDiffer) {
  // Compute a1 5, a2 9, a3 1: 15 a step. w (9 alone) follows a1 and the next a1 needs it; u (8 alone) follows a2. Both
  // use one link, 17 a step: no step can be shorter than 17 for long.
  //   iteration 0: a1 0-5, w 5-14 alone, a2 5-14, u from 14, a3 14-15
  //   iteration 1: a1 15-20, w from 20, a2 20-29, u from 29, a3 29-30: the same starts, yet w shares the link with the
  //   rest of u and ends after 30.
  TestProblem p;
  const auto rank = p.rank();
  const auto a1 = p.compute(rank, 5), a2 = p.compute(rank, 9);
  p.compute(rank, 1);
  const auto w = p.transfer(rank, {.moving = 9, .use = {{0, 1}}});
  const auto u = p.transfer(rank, {.moving = 8, .use = {{0, 1}}});
  p.wait(w, a1);
  p.wait(a1, w, 1);
  p.wait(u, a2);
  const SimResult result = simulate(p.build());
  EXPECT_EQ(start_of(result, w, 1) - start_of(result, a1, 1), start_of(result, w));
  EXPECT_EQ(start_of(result, u, 1) - start_of(result, a1, 1), start_of(result, u));
  EXPECT_GE(result.period_ns, 17);
}

TEST(StepTime, TheSteadyWindowHoldsWhatEarlierIterationsLeftRunning) {
  // Compute 10 a step; a transfer of 9 follows it beside the next step's compute. Every iteration starts alike from the
  // first on, but in iteration 0 nothing runs beside compute yet: the window must begin later.
  TestProblem p;
  const auto rank = p.rank();
  const auto a = p.compute(rank, 10);
  const auto t = p.transfer(rank, {.moving = 9});
  p.wait(t, a);
  const SimResult result = simulate(p.build());
  EXPECT_EQ(result.period_ns, 10);
  EXPECT_GE(result.steady_first, 1);
  EXPECT_EQ(result.steady_begin.value, start_of(result, a, static_cast<std::size_t>(result.steady_first)));
  EXPECT_GT(end_of(result, t, static_cast<std::size_t>(result.steady_first - 1)), result.steady_begin.value);
}

TEST(StepTime, TheSteadyWindowWaitsForAsManyIterationsAsOverlap) {
  // A chain of transfers five steps long hangs off every step, each in a queue of its own: what runs in a step was
  // begun up to five steps before.
  TestProblem p;
  const auto rank = p.rank();
  std::int32_t before = p.compute(rank, 10);
  for (int i = 0; i < 5; ++i) {
    const auto t = p.transfer(rank, {.moving = 10});
    p.wait(t, before);
    before = t;
  }
  const SimResult result = simulate(p.build());
  EXPECT_EQ(result.period_ns, 10);
  EXPECT_GE(result.steady_first, 5);
}

}  // namespace
}  // namespace weft::test
