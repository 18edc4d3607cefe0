// LayerNorm and RMSNorm. Backward computes the mean and deviation of a row again, since it reads the row anyway.
#include <algorithm>
#include <cmath>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"

namespace weft::aten {
namespace {

struct RowScale {
  float mean = 0;     // 0 for RMSNorm
  float inverse = 0;  // of the deviation
};

RowScale scale_of(const float* x, std::int64_t columns, const NormWeights& weights) {
  float sum = 0, squares = 0;
  const auto count = static_cast<float>(columns);
  if (!weights.bias.empty())
    for (std::int64_t c = 0; c < columns; ++c) sum += x[c];
  const float mean = sum / count;
  for (std::int64_t c = 0; c < columns; ++c) squares += (x[c] - mean) * (x[c] - mean);
  return {mean, 1.0F / std::sqrt(squares / count + static_cast<float>(weights.epsilon))};
}

void norm_row(const float* x, const NormWeights& weights, std::int64_t columns, float* y) {
  const auto [mean, inverse] = scale_of(x, columns, weights);
  const float* gain = floats(weights.gain);
  const float* bias = floats(weights.bias);
  if (bias != nullptr)
    for (std::int64_t c = 0; c < columns; ++c) y[c] = (x[c] - mean) * inverse * gain[c] + bias[c];
  else
    for (std::int64_t c = 0; c < columns; ++c) y[c] = x[c] * inverse * gain[c];
}

// With n = (x - mean) inverse and g = dy gain: dx = inverse (g - mean(g) - n mean(g n)); RMSNorm has no mean(g).
void input_grad_row(const float* dy, const float* x, const NormWeights& weights, std::int64_t columns,
                    const float* residual, float* dx) {
  const auto [mean, inverse] = scale_of(x, columns, weights);
  const float* gain = floats(weights.gain);
  float sum = 0, product = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    const float gradient = dy[c] * gain[c];
    sum += gradient;
    product += gradient * (x[c] - mean);
  }
  const auto count = static_cast<float>(columns);
  const float mean_gradient = weights.bias.empty() ? 0.0F : sum / count;
  const float slope = product * inverse * inverse / count;
  if (residual != nullptr)
    for (std::int64_t c = 0; c < columns; ++c)
      dx[c] = residual[c] + inverse * (dy[c] * gain[c] - mean_gradient - (x[c] - mean) * slope);
  else
    for (std::int64_t c = 0; c < columns; ++c)
      dx[c] = inverse * (dy[c] * gain[c] - mean_gradient - (x[c] - mean) * slope);
}

// dgain and dbias of a block of rows, added up in `sums`: first one, then the other.
void weight_grad_rows(const Matrix& dy, const Matrix& x, const NormWeights& weights, std::int64_t begin,
                      std::int64_t end, float* sums) {
  const std::int64_t columns = x.columns;
  float* gains = sums;
  float* biases = sums + columns;
  std::fill_n(sums, 2 * columns, 0.0F);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* values = row(x, r);
    const float* gradient = row(dy, r);
    const auto [mean, inverse] = scale_of(values, columns, weights);
    for (std::int64_t c = 0; c < columns; ++c) {
      gains[c] += gradient[c] * (values[c] - mean) * inverse;
      biases[c] += gradient[c];
    }
  }
}

}  // namespace

void AtenKernels::norm(const Matrix& x, const NormWeights& weights, const Matrix& y) {
  in_ranges(x.rows, row_grain(x.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) norm_row(row(x, r), weights, x.columns, row(y, r));
  });
}

void AtenKernels::norm_input_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Matrix& residual,
                                  const Matrix& dx) {
  in_ranges(x.rows, row_grain(x.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      input_grad_row(row(dy, r), row(x, r), weights, x.columns, residual.empty() ? nullptr : row(residual, r),
                     row(dx, r));
  });
}

void AtenKernels::norm_weight_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Vector& dgain,
                                   const Vector& dbias, Into into) {
  const std::int64_t columns = x.columns;
  const std::int64_t blocks = (x.rows + kSumBlock - 1) / kSumBlock;
  const std::span<float> sums = scratch(1, blocks * 2 * columns);
  in_ranges(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block)
      weight_grad_rows(dy, x, weights, block * kSumBlock, std::min(x.rows, (block + 1) * kSumBlock),
                       sums.data() + block * 2 * columns);
  });
  const Matrix of_blocks = Matrix::dense(sums.data(), blocks, 2 * columns);
  sum_rows(of_blocks.column_slice(0, columns), floats(dgain), into);
  if (!dbias.empty()) sum_rows(of_blocks.column_slice(columns, 2 * columns), floats(dbias), into);
}

}  // namespace weft::aten
