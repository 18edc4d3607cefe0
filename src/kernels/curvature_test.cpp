// K-FAC's kernels against libtorch's linear algebra in double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 1e-5;

Matrix matrix_of(const at::Tensor& values) {
  return Matrix::dense(values.data_ptr<float>(), values.size(0), values.size(1));
}

at::Tensor damped_inverse(const at::Tensor& factor, double damping) {
  const at::Tensor added = damping * factor.diagonal().mean() * at::eye(factor.size(0), at::kDouble);
  return at::linalg_inv(factor + added);
}

TEST(Curvature, IsTheScaledSumOfOuterProducts) {
  const SlicedTensor first(random_tensor({19, 6}, 1)), second(random_tensor({4, 6}, 2));
  const at::Tensor sum = at::full({6, 6}, 9.0F);
  kernels().curvature(first.matrix(), 0.25, matrix_of(sum), Into::overwrite);
  kernels().curvature(second.matrix(), 0.25, matrix_of(sum), Into::add);
  const at::Tensor rows = at::cat({first.values(), second.values()}).to(at::kDouble);
  EXPECT_LE(relative_error(sum, 0.25 * rows.t().matmul(rows)), kTolerance);
}

TEST(InvertCurvature, AveragesOverStepsAndInvertsWithDamping) {
  for (const std::int64_t size : {1, 5, 70}) {
    const at::Tensor average = at::full({size, size}, std::nanf("")), inverse = at::zeros({size, size});
    at::Tensor expected = at::zeros({size, size}, at::kDouble);
    for (int step = 0; step < 3; ++step) {
      // Of fewer rows than columns: without damping there is no inverse.
      const at::Tensor rows = random_tensor({(size + 1) / 2, size}, 10 + static_cast<std::uint64_t>(step));
      const at::Tensor found = rows.t().matmul(rows).contiguous();
      const double keep = step == 0 ? 0 : 0.9;
      bool finite = false;
      kernels().invert_curvature(matrix_of(found), keep, 0.1, matrix_of(average), matrix_of(inverse), finite);
      kernels().synchronize();
      EXPECT_TRUE(finite);
      expected = keep * expected + (1 - keep) * found.to(at::kDouble);
      EXPECT_LE(relative_error(average, expected), kTolerance) << size;
      EXPECT_LE(relative_error(inverse, damped_inverse(expected, 0.1)), 20 * kTolerance) << size;
    }
  }
}

TEST(InvertCurvature, SaysWhereThereIsNoInverse) {
  const at::Tensor found = -at::eye(3), average = at::zeros({3, 3}), inverse = at::zeros({3, 3});
  bool finite = true;
  kernels().invert_curvature(matrix_of(found), 0, 0.1, matrix_of(average), matrix_of(inverse), finite);
  kernels().synchronize();
  EXPECT_FALSE(finite);
}

struct Preconditioned {
  at::Tensor weight, bias;
};

Preconditioned precondition(const at::Tensor& weight, const at::Tensor& bias, const Matrix& inputs,
                            const Matrix& outputs) {
  Preconditioned result{at::zeros_like(weight), at::zeros_like(bias)};
  kernels().precondition({matrix_of(weight), vector_of(bias)}, inputs, outputs,
                         {matrix_of(result.weight), vector_of(result.bias)});
  kernels().synchronize();
  return result;
}

TEST(Precondition, IsTheNaturalGradientWithElementsOfMeanSquareOne) {
  const at::Tensor a = random_tensor({4, 4}, 1), g = random_tensor({3, 3}, 2);
  const at::Tensor inputs = (a.matmul(a.t()) + at::eye(4)).contiguous(), outputs = g.matmul(g.t()) + at::eye(3);
  const at::Tensor weight = random_tensor({3, 4}, 3), bias = random_tensor({3}, 4);
  const auto [of_weight, of_bias] = precondition(weight, bias, matrix_of(inputs), matrix_of(outputs.contiguous()));
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
  const at::Tensor natural = wide(outputs).matmul(wide(weight)).matmul(wide(inputs));
  const at::Tensor natural_bias = wide(outputs).matmul(wide(bias));
  const at::Tensor length = ((natural.square().sum() + natural_bias.square().sum()) / 15).sqrt();  // 3 x 4 and 3
  EXPECT_LE(relative_error(of_weight, natural / length), kTolerance);
  EXPECT_LE(relative_error(of_bias, natural_bias / length), kTolerance);
}

TEST(Precondition, IsTheScaledGradientBeforeThereAreInverses) {
  const at::Tensor weight = random_tensor({3, 4}, 3), bias = random_tensor({3}, 4);
  const auto [of_weight, of_bias] = precondition(weight, bias, {}, {});
  const at::Tensor length = ((weight.to(at::kDouble).square().sum() + bias.to(at::kDouble).square().sum()) / 15).sqrt();
  EXPECT_LE(relative_error(of_weight, weight / length), kTolerance);
  EXPECT_LE(relative_error(of_bias, bias / length), kTolerance);
}

TEST(Precondition, LeavesALayerWithoutAGradientWhereItIs) {
  const at::Tensor weight = at::zeros({3, 4}), bias = at::zeros({3});
  const auto [of_weight, of_bias] = precondition(weight, bias, {}, {});
  EXPECT_EQ(of_weight.abs().max().item<float>(), 0.0F);
  EXPECT_EQ(of_bias.abs().max().item<float>(), 0.0F);
}

}  // namespace
}  // namespace weft
