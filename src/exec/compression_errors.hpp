// How much of the gradients encoding holds back, step by step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Sums of squares over the gradients of a rank that are encoded, by step. The thread that computes writes them.
struct CompressionErrors {
  std::vector<double> gradient, error;

  void add(std::int64_t step, double gradient_square, double error_square);
  // Returns by step, from `first` on, the norm of what is held back over the norm of the gradients; 0 where there are
  // none. Empty where nothing was encoded.
  std::vector<double> relative(std::int64_t first, std::int64_t steps) const;
};

// Returns whether training leads away: the losses of the last steps are all far above that of the first.
bool has_diverged(std::span<const double> losses);
inline constexpr std::int64_t kStepsOfDivergence = 5;
inline constexpr double kGrowthOfDivergence = 2;  // times the first loss

}  // namespace weft
