// K-FAC: outer products of a layer's inputs and output gradients, their inverses, and the step that follows.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"
#include "kernels/aten/products.hpp"

namespace weft::aten {
namespace {

constexpr std::int64_t kRowsOfASum = 64;

// Adds up in rows of one size, so that the sum is the same for every number of threads.
double inner_product(const Matrix& a, const Matrix& b) {
  const std::int64_t blocks = (a.rows + kRowsOfASum - 1) / kRowsOfASum;
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  in_ranges(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      double sum = 0;
      for (std::int64_t r = block * kRowsOfASum; r < std::min(a.rows, (block + 1) * kRowsOfASum); ++r) {
        const float *left = row(a, r), *right = row(b, r);
        for (std::int64_t c = 0; c < a.columns; ++c)
          sum += static_cast<double>(left[c]) * static_cast<double>(right[c]);
      }
      sums[static_cast<std::size_t>(block)] = sum;
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

Matrix as_column(const Vector& x) {
  return Matrix::dense(x.data, x.size, 1);
}

void scale_rows(const Matrix& x, double factor) {
  in_ranges(x.rows, row_grain(x.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      float* values = row(x, r);
      for (std::int64_t c = 0; c < x.columns; ++c) values[c] *= static_cast<float>(factor);
    }
  });
}

void copy_all(const Matrix& from, const Matrix& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) std::copy_n(row(from, r), from.columns, row(to, r));
}

}  // namespace

void AtenKernels::curvature(const Matrix& x, double scale, const Matrix& sum, Into into) {
  multiply({x, Turned::yes}, {x}, sum, into, scale);
}

void AtenKernels::invert_curvature(const Matrix& curvature, double keep, double damping, const Matrix& average,
                                   const Matrix& inverse, bool& finite) {
  const auto kept = static_cast<float>(keep), taken = static_cast<float>(1 - keep);
  in_ranges(average.rows, row_grain(average.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = row(curvature, r);
      float *mean = row(average, r), *out = row(inverse, r);
      for (std::int64_t c = 0; c < average.columns; ++c) {
        mean[c] = keep == 0 ? in[c] : kept * mean[c] + taken * in[c];
        out[c] = mean[c];
      }
    }
  });
  double diagonal = 0;
  for (std::int64_t r = 0; r < average.rows; ++r) diagonal += static_cast<double>(row(average, r)[r]);
  const auto added = static_cast<float>(damping * diagonal / static_cast<double>(average.rows));
  for (std::int64_t r = 0; r < inverse.rows; ++r) row(inverse, r)[r] += added;
  // Where a layer's inputs or gradients are all zero, so is the inverse: the layer then does not move.
  finite = diagonal == 0 || invert_symmetric(inverse);
}

void AtenKernels::precondition(const LinearGradient& gradient, const Matrix& inputs, const Matrix& outputs,
                               const LinearGradient& direction) {
  const Matrix& weight = gradient.weight;
  Matrix half = weight;
  if (!outputs.empty()) {
    half = inputs.empty() ? direction.weight
                          : Matrix::dense(scratch(0, weight.rows * weight.columns).data(), weight.rows, weight.columns);
    multiply({outputs}, {weight}, half, Into::overwrite);
  }
  if (!inputs.empty()) {
    multiply({half}, {inputs}, direction.weight, Into::overwrite);
  } else if (outputs.empty()) {
    copy_all(weight, direction.weight);
  }
  double square = inner_product(direction.weight, direction.weight);
  std::int64_t elements = weight.rows * weight.columns;
  if (!gradient.bias.empty()) {
    const Matrix bias = as_column(gradient.bias), of_bias = as_column(direction.bias);
    if (outputs.empty()) {
      copy_all(bias, of_bias);
    } else {
      multiply({outputs}, {bias}, of_bias, Into::overwrite);
    }
    square += inner_product(of_bias, of_bias);
    elements += gradient.bias.size;
  }
  // A layer without a gradient does not move. NaN passes, for the update to find it.
  const double factor = square <= 0 ? 0 : std::sqrt(static_cast<double>(elements) / square);
  scale_rows(direction.weight, factor);
  if (!direction.bias.empty()) scale_rows(as_column(direction.bias), factor);
}

}  // namespace weft::aten
