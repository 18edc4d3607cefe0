#include "study/against/robust_step.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft {
namespace {

constexpr int kReweightings = 12;

// Solves a symmetric positive definite system in place: elimination without pivots is stable for these.
std::vector<double> solve(std::vector<std::vector<double>> matrix, std::vector<double> right) {
  const std::size_t n = right.size();
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t row = k + 1; row < n; ++row) {
      const double factor = matrix[row][k] / matrix[k][k];
      for (std::size_t column = k; column < n; ++column) matrix[row][column] -= factor * matrix[k][column];
      right[row] -= factor * right[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t column = k + 1; column < n; ++column) right[k] -= matrix[k][column] * right[column];
    right[k] /= matrix[k][k];
  }
  return right;
}

double error_after(const LinearRow& row, const std::vector<double>& step) {
  double error = row.error;
  for (std::size_t k = 0; k < step.size(); ++k) error += row.slopes[k] * step[k];
  return error;
}

}  // namespace

double robust_loss(const std::vector<double>& errors, const std::vector<double>& strayed) {
  double loss = 0;
  for (const double error : errors) {
    const double size = std::abs(error);
    loss += size < kSmallError ? (size * size / kSmallError + kSmallError) / 2 : size;
  }
  for (const double x : strayed) loss += x * x / (2 * kUsualStray * kUsualStray);
  return loss;
}

std::vector<double> robust_step(const std::vector<LinearRow>& rows, const std::vector<double>& strayed,
                                std::size_t left_out, double longest) {
  const std::size_t n = strayed.size();
  std::vector<double> step(n, 0);
  for (int round = 0; round < kReweightings; ++round) {
    std::vector<std::vector<double>> matrix(n, std::vector<double>(n, 0));
    std::vector<double> right(n, 0);
    for (std::size_t k = 0; k < n; ++k) {
      matrix[k][k] = 1 / (kUsualStray * kUsualStray);
      right[k] = -strayed[k] * matrix[k][k];
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i == left_out) continue;
      const LinearRow& row = rows[i];
      const double weight = 1 / std::max(kSmallError, std::abs(error_after(row, step)));
      for (std::size_t k = 0; k < n; ++k) {
        right[k] -= weight * row.slopes[k] * row.error;
        for (std::size_t j = 0; j < n; ++j) matrix[k][j] += weight * row.slopes[k] * row.slopes[j];
      }
    }
    step = solve(std::move(matrix), std::move(right));
  }
  for (double& s : step) s = std::clamp(s, -longest, longest);
  return step;
}

}  // namespace weft
