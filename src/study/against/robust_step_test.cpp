#include "study/against/robust_step.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

constexpr double kFar = 10;

TEST(RobustStep, SolvesWhatRowsAgreeOn) {
  // Errors that the step (0.2, -0.1) brings to nothing; the pull to where unknowns were is a thousandth of the rows'.
  std::vector<LinearRow> rows;
  for (int i = 0; i < 60; ++i) {
    const double a = 1 + 0.1 * i, b = std::sin(static_cast<double>(i)) * 3;
    rows.push_back({-(0.2 * a - 0.1 * b), {a, b}});
  }
  const std::vector<double> step = robust_step(rows, {0, 0}, rows.size(), kFar);
  EXPECT_NEAR(step[0], 0.2, 2e-4);
  EXPECT_NEAR(step[1], -0.1, 2e-4);
}

TEST(RobustStep, AWildRowCountsLikeAnyOther) {
  // One unknown that every row follows: the least absolute deviations are at the median, -0.1 of the eleven rows. The
  // mean would be 0.36 the other way.
  std::vector<LinearRow> rows(10, {-0.1, {1}});
  rows.push_back({5, {1}});
  EXPECT_NEAR(robust_step(rows, {0}, rows.size(), kFar)[0], 0.1, 0.01);
  // Half as many rows on the other side: it is still the median.
  rows.insert(rows.end(), 4, {0.3, {1}});
  EXPECT_NEAR(robust_step(rows, {0}, rows.size(), kFar)[0], 0.1, 0.03);
}

TEST(RobustStep, LeavesARowOut) {
  // Two rows, each of which tells one unknown.
  const std::vector<LinearRow> rows{{-0.3, {10, 0}}, {-0.3, {0, 10}}};
  const std::vector<double> step = robust_step(rows, {0, 0}, 1, kFar);
  EXPECT_NEAR(step[0], 0.03, 1e-3);
  EXPECT_EQ(step[1], 0);
}

TEST(RobustStep, UnknownsThatNoRowTellsReturn) {
  const std::vector<LinearRow> rows{{-0.3, {10, 0}}};
  EXPECT_NEAR(robust_step(rows, {0, 0.25}, 1, kFar)[1], -0.25, 1e-12);
}

TEST(RobustStep, IsNoLongerThanAllowed) {
  const std::vector<LinearRow> rows{{-3, {1}}, {-3, {1}}};
  EXPECT_EQ(robust_step(rows, {0}, 2, 0.35)[0], 0.35);
}

TEST(RobustLoss, SquaresSmallErrorsOnly) {
  // 0.1 by its size; 0.015 as (0.015^2 / 0.03 + 0.03) / 2; nothing as half of 0.03. An unknown at 0.7 costs a half.
  EXPECT_NEAR(robust_loss({0.1, -0.015, 0}, {0.7}), 0.1 + 0.01875 + 0.015 + 0.5, 1e-12);
}

}  // namespace
}  // namespace weft
