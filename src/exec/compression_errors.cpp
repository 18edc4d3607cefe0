#include "exec/compression_errors.hpp"

#include <algorithm>
#include <cmath>

namespace weft {

void CompressionErrors::add(std::int64_t step, double gradient_square, double error_square) {
  if (step < 0) return;  // of validation
  if (step >= std::ssize(gradient)) {
    gradient.resize(static_cast<std::size_t>(step) + 1, 0.0);
    error.resize(static_cast<std::size_t>(step) + 1, 0.0);
  }
  gradient[static_cast<std::size_t>(step)] += gradient_square;
  error[static_cast<std::size_t>(step)] += error_square;
}

std::vector<double> CompressionErrors::relative(std::int64_t first, std::int64_t steps) const {
  std::vector<double> result;
  for (std::int64_t step = first; step < first + steps && step < std::ssize(gradient); ++step) {
    const auto at = static_cast<std::size_t>(step);
    result.push_back(gradient[at] > 0 ? std::sqrt(error[at] / gradient[at]) : 0.0);
  }
  return result;
}

bool has_diverged(std::span<const double> losses) {
  if (std::ssize(losses) <= kStepsOfDivergence) return false;
  return std::ranges::all_of(losses.last(static_cast<std::size_t>(kStepsOfDivergence)),
                             [&](double loss) { return loss > kGrowthOfDivergence * losses.front(); });
}

}  // namespace weft
