#include "compress/low_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/mix.hpp"

namespace weft {
namespace {

constexpr std::int64_t kColumnsAtOnce = 2048;  // of a row; with errors added they stay in the first-level cache
using RowSlice = std::array<float, kColumnsAtOnce>;

std::size_t index_of(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Lanes keep vector registers busy; their few hundred summands are exact enough in floats.
double dot(const float* a, const float* b, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += kColumnsAtOnce) {
    const std::int64_t end = std::min(count, begin + kColumnsAtOnce);
    std::array<float, kLanes> lanes{};
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[index_of(lane)] += a[i + lane] * b[i + lane];
    }
    for (; i < end; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    for (const float lane : lanes) sum += static_cast<double>(lane);
  }
  return sum;
}

void add_multiple(float factor, const float* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

// Numbers between -1 and 1.
void draw_numbers(std::uint64_t seed, std::span<float> numbers) {
  constexpr double kUnit = 1.0 / (1 << 23);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint64_t bits = mix_bits(seed + i) >> 40;  // 24 of them
    numbers[i] = static_cast<float>(static_cast<double>(bits) * kUnit - 1.0);
  }
}

// Calls visit(row, first column, columns, gradient + error there) for all of a matrix.
template <class Visit>
void for_each_slice(const LowRankMatrix& matrix, std::span<const float> values, std::span<const float> errors,
                    const Visit& visit) {
  RowSlice wanted;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t first = 0; first < matrix.columns; first += kColumnsAtOnce) {
      const std::int64_t count = std::min(kColumnsAtOnce, matrix.columns - first);
      const std::size_t begin = index_of(matrix.offset + row * matrix.columns + first);
      for (std::int64_t i = 0; i < count; ++i) {
        wanted[index_of(i)] = values[begin + index_of(i)] + errors[begin + index_of(i)];
      }
      visit(row, first, count, wanted.data());
    }
  }
}

}  // namespace

void make_orthonormal(std::span<float> factor, std::int64_t rank, std::uint64_t seed) {
  WEFT_CHECK(rank >= 1 && std::ssize(factor) % rank == 0 && std::ssize(factor) >= rank * rank);
  constexpr double kLeastShare = 1e-5;  // what rounding leaves of a column that depends on those before it
  const std::int64_t rows = std::ssize(factor) / rank;
  for (std::int64_t k = 0; k < rank; ++k) {
    float* const column = factor.data() + k * rows;
    for (std::uint64_t draws = 0;; ++draws) {
      const double before = std::sqrt(dot(column, column, rows));
      for (int pass = 0; pass < 2; ++pass) {
        for (std::int64_t l = 0; l < k; ++l) {
          const float* const earlier = factor.data() + l * rows;
          add_multiple(static_cast<float>(-dot(earlier, column, rows)), earlier, rows, column);
        }
      }
      const double left = std::sqrt(dot(column, column, rows));
      // Gradients that are not finite stay so, and the run notices.
      if (!std::isfinite(left) || (left > kLeastShare * before && left > 0)) {
        const auto scale = static_cast<float>(1 / left);
        for (std::int64_t i = 0; i < rows; ++i) column[i] *= scale;
        break;
      }
      draw_numbers(mix_bits(seed ^ mix_bits(index_of(k) + (draws << 32))), {column, index_of(rows)});
    }
  }
}

void multiply_by_right(const LowRankMatrix& matrix, std::span<const float> values, std::span<const float> errors,
                       std::span<const float> right, std::span<float> left) {
  float* const to = left.data() + matrix.left;
  std::fill_n(to, matrix.rank * matrix.rows, 0.0F);
  for_each_slice(matrix, values, errors, [&](std::int64_t row, std::int64_t first, auto count, const float* wanted) {
    for (std::int64_t k = 0; k < matrix.rank; ++k) {
      const float* const column = right.data() + matrix.right + k * matrix.columns + first;
      to[k * matrix.rows + row] += static_cast<float>(dot(wanted, column, count));
    }
  });
}

void multiply_by_left(const LowRankMatrix& matrix, std::span<const float> values, std::span<const float> errors,
                      std::span<const float> left, std::span<float> right) {
  float* const to = right.data() + matrix.right;
  std::fill_n(to, matrix.rank * matrix.columns, 0.0F);
  for_each_slice(matrix, values, errors, [&](std::int64_t row, std::int64_t first, auto count, const float* wanted) {
    for (std::int64_t k = 0; k < matrix.rank; ++k) {
      const float factor = left[index_of(matrix.left + k * matrix.rows + row)];
      add_multiple(factor, wanted, count, to + k * matrix.columns + first);
    }
  });
}

LowRankSquares expand(const LowRankMatrix& matrix, std::span<const float> left, std::span<const float> right,
                      std::int64_t ranks, std::span<float> values, std::span<float> errors) {
  const auto share = static_cast<float>(1.0 / static_cast<double>(ranks));
  LowRankSquares squares;
  RowSlice sum;
  for_each_slice(matrix, values, errors, [&](std::int64_t row, std::int64_t first, auto count, const float* wanted) {
    std::fill_n(sum.data(), count, 0.0F);
    for (std::int64_t k = 0; k < matrix.rank; ++k) {
      add_multiple(left[index_of(matrix.left + k * matrix.rows + row)],
                   right.data() + matrix.right + k * matrix.columns + first, count, sum.data());
    }
    const std::int64_t begin = matrix.offset + row * matrix.columns + first;
    float *const value = values.data() + begin, *const error = errors.data() + begin;
    squares.gradient += dot(value, value, count);
    for (std::int64_t i = 0; i < count; ++i) {
      error[i] = wanted[i] - share * sum[index_of(i)];
      value[i] = sum[index_of(i)];
    }
    squares.error += dot(error, error, count);
  });
  return squares;
}

}  // namespace weft
