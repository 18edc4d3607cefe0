#include "exec/checkpoint/load_curvature.hpp"

#include "base/error.hpp"

namespace weft {
namespace {

// The diagonal of a factor is a mean of squares.
bool has_been_computed(const std::vector<float>& average, std::int64_t rows) {
  for (std::int64_t row = 0; row < rows; ++row) {
    if (average[static_cast<std::size_t>(row * rows + row)] != 0) return true;
  }
  return false;
}

void invert(const CurvatureFactor& factor, const KfacSettings& settings, Kernels& kernels) {
  constexpr double kKeepAll = 1;  // the average stays what it is, and is inverted as in the step that made it
  bool finite = true;
  kernels.invert_curvature(factor.average, kKeepAll, settings.damping, factor.average, factor.inverse, finite);
  kernels.synchronize();
  if (!finite) {
    fail("{} of {}: has no inverse with --kfac-damping {:g}; give a larger one",
         kTensorKindNames[static_cast<std::size_t>(factor.kind())], factor.tensor, settings.damping);
  }
}

}  // namespace

std::deque<bool> load_curvature(const CheckpointReader& checkpoint, const RankView& view,
                                const ParameterStates& parameters, const KfacSettings& settings, Kernels& kernels) {
  std::deque<bool> known;
  std::vector<float> average;
  for (const CurvatureFactor& factor : parameters.factors()) {
    const std::int64_t rows = factor.average.rows;
    average.resize(static_cast<std::size_t>(rows * rows));
    checkpoint.read_factor(factor, average);
    view.memory().write(average, {factor.average.data, rows * rows});
    known.push_back(has_been_computed(average, rows));
    if (known.back()) invert(factor, settings, kernels);
  }
  return known;
}

}  // namespace weft
