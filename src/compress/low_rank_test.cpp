// Factors of low rank against products written out in double precision.
#include "compress/low_rank.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace weft {
namespace {

using Floats = std::vector<float>;

Floats normal_numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats numbers(count);
  for (float& number : numbers) number = normal(generator);
  return numbers;
}

// Columns lie one after the other.
double dot_of_columns(const Floats& factor, std::int64_t rank, std::int64_t a, std::int64_t b) {
  const std::int64_t rows = std::ssize(factor) / rank;
  double sum = 0;
  for (std::int64_t i = 0; i < rows; ++i) sum += double{factor[a * rows + i]} * double{factor[b * rows + i]};
  return sum;
}

void expect_orthonormal(const Floats& factor, std::int64_t rank) {
  for (std::int64_t a = 0; a < rank; ++a) {
    for (std::int64_t b = 0; b <= a; ++b) {
      EXPECT_NEAR(dot_of_columns(factor, rank, a, b), a == b ? 1 : 0, 2e-6) << a << " " << b;
    }
  }
}

TEST(LowRank, MakesColumnsOrthonormalAndKeepsTheirSpan) {
  for (const std::int64_t rows : {5, 64, 5000}) {
    constexpr std::int64_t kRank = 4;
    const Floats before = normal_numbers(rows * kRank, 1);
    Floats after = before;
    make_orthonormal(after, kRank, 1);
    expect_orthonormal(after, kRank);
    // What is left of a column when its parts along the new ones are taken away.
    for (std::int64_t k = 0; k < kRank; ++k) {
      std::vector<double> rest(before.begin() + k * rows, before.begin() + (k + 1) * rows);
      for (std::int64_t l = 0; l <= k; ++l) {
        double along = 0;
        for (std::int64_t i = 0; i < rows; ++i) along += double{before[k * rows + i]} * double{after[l * rows + i]};
        for (std::int64_t i = 0; i < rows; ++i) rest[i] -= along * double{after[l * rows + i]};
      }
      for (const double left : rest) EXPECT_NEAR(left, 0, 1e-4);
    }
  }
}

// Zeros, a column twice and a multiple of a sum of others: the missing directions are drawn, the same from one seed.
TEST(LowRank, DrawsColumnsThatOthersLeaveNothingOf) {
  constexpr std::int64_t kRows = 40, kRank = 5;
  Floats factor = normal_numbers(kRows * kRank, 2);
  for (std::int64_t i = 0; i < kRows; ++i) {
    factor[kRows + i] = 0;
    factor[2 * kRows + i] = factor[i];
    factor[4 * kRows + i] = 3 * (factor[i] - factor[3 * kRows + i]);
  }
  Floats again = factor, other = factor, zeros(kRows * kRank, 0.0F);
  make_orthonormal(factor, kRank, 7);
  make_orthonormal(again, kRank, 7);
  make_orthonormal(other, kRank, 8);
  make_orthonormal(zeros, kRank, 7);
  expect_orthonormal(factor, kRank);
  expect_orthonormal(zeros, kRank);
  EXPECT_EQ(factor, again);
  EXPECT_NE(factor, other);
}

TEST(LowRank, LetsNumbersThatAreNotFiniteThrough) {
  Floats factor = normal_numbers(20, 3);
  factor[3] = std::numeric_limits<float>::infinity();
  make_orthonormal(factor, 2, 1);
  EXPECT_TRUE(std::ranges::any_of(factor, [](float number) { return !std::isfinite(number); }));
}

// Rows longer than what is worked on at once, with other elements before and behind the matrix and its factors.
struct Sizes {
  std::int64_t rows, columns, rank;
};
class LowRankProducts : public ::testing::TestWithParam<Sizes> {
 protected:
  const LowRankMatrix matrix_{7, GetParam().rows, GetParam().columns, GetParam().rank, 3, 5};
  const std::size_t elements_ = matrix_.offset + matrix_.rows * matrix_.columns + 2;
  Floats values_ = normal_numbers(elements_, 4), errors_ = normal_numbers(elements_, 5);
  Floats left_ = normal_numbers(matrix_.left + matrix_.rows * matrix_.rank, 6);
  Floats right_ = normal_numbers(matrix_.right + matrix_.columns * matrix_.rank, 7);

  double wanted(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = matrix_.offset + row * matrix_.columns + column;
    return double{values_[at]} + double{errors_[at]};
  }
  float& left(std::int64_t row, std::int64_t k) { return left_[matrix_.left + k * matrix_.rows + row]; }
  float& right(std::int64_t column, std::int64_t k) { return right_[matrix_.right + k * matrix_.columns + column]; }
  double tolerance(std::int64_t summands) const { return 1e-6 * std::sqrt(double(summands)) * 10; }
};

TEST_P(LowRankProducts, AreThoseOfTheMatrixWithItsErrors) {
  multiply_by_right(matrix_, values_, errors_, right_, left_);
  for (std::int64_t row = 0; row < matrix_.rows; ++row) {
    for (std::int64_t k = 0; k < matrix_.rank; ++k) {
      double sum = 0;
      for (std::int64_t column = 0; column < matrix_.columns; ++column) sum += wanted(row, column) * right(column, k);
      ASSERT_NEAR(left(row, k), sum, tolerance(matrix_.columns)) << row << " " << k;
    }
  }
  left_ = normal_numbers(left_.size(), 8);
  multiply_by_left(matrix_, values_, errors_, left_, right_);
  for (std::int64_t column = 0; column < matrix_.columns; ++column) {
    for (std::int64_t k = 0; k < matrix_.rank; ++k) {
      double sum = 0;
      for (std::int64_t row = 0; row < matrix_.rows; ++row) sum += wanted(row, column) * left(row, k);
      ASSERT_NEAR(right(column, k), sum, tolerance(matrix_.rows)) << column << " " << k;
    }
  }
}

TEST_P(LowRankProducts, BecomeTheSumAndLeaveThisRanksErrors) {
  constexpr std::int64_t kRanks = 3;
  const Floats values = values_, errors = errors_;
  const LowRankSquares squares = expand(matrix_, left_, right_, kRanks, values_, errors_);
  double gradient = 0, error = 0;
  for (std::size_t i = 0; i < elements_; ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i) - matrix_.offset;
    if (at < 0 || at >= matrix_.rows * matrix_.columns) {
      ASSERT_EQ(values_[i], values[i]);
      ASSERT_EQ(errors_[i], errors[i]);
      continue;
    }
    double sum = 0;
    for (std::int64_t k = 0; k < matrix_.rank; ++k) {
      sum += double{left(at / matrix_.columns, k)} * double{right(at % matrix_.columns, k)};
    }
    ASSERT_NEAR(values_[i], sum, 1e-5);
    ASSERT_NEAR(errors_[i], double{values[i]} + double{errors[i]} - sum / kRanks, 1e-5);
    gradient += double{values[i]} * double{values[i]};
    error += double{errors_[i]} * double{errors_[i]};
  }
  EXPECT_NEAR(squares.gradient / gradient, 1, 1e-5);
  EXPECT_NEAR(squares.error / error, 1, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LowRankProducts,
                         ::testing::Values(Sizes{1, 1, 1}, Sizes{9, 33, 2}, Sizes{64, 48, 4}, Sizes{3, 5000, 3},
                                           Sizes{2100, 17, 4}));

}  // namespace
}  // namespace weft
