#include <gtest/gtest.h>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 3e-6;

struct NormCase {
  std::int64_t rows, columns;
  bool has_bias;
};
class Norm : public testing::TestWithParam<NormCase> {
 protected:
  std::int64_t rows = GetParam().rows, columns = GetParam().columns;
  bool has_bias = GetParam().has_bias;
  at::Tensor x = random_tensor({rows, columns}, 1) * 2 + 0.5;
  at::Tensor gain = random_tensor({columns}, 2), bias = random_tensor({columns}, 3);
  at::Tensor dy = random_tensor({rows, columns}, 4);
  NormWeights weights{vector_of(gain), has_bias ? vector_of(bias) : Vector{}, 1e-5};

  Oracle oracle() const {
    const auto layer_norm = [](const auto& in) {
      const at::Tensor centred = in[0] - in[0].mean(-1, true);
      return centred / (centred.pow(2).mean(-1, true) + 1e-5).sqrt() * in[1] + in[2];
    };
    const auto rms_norm = [](const auto& in) {
      return in[0] / (in[0].pow(2).mean(-1, true) + 1e-5).sqrt() * in[1] + 0 * in[2];
    };
    return has_bias ? ask_oracle(layer_norm, {x, gain, bias}, dy) : ask_oracle(rms_norm, {x, gain, bias}, dy);
  }
};

TEST_P(Norm, Forward) {
  const SlicedTensor y(rows, columns);
  kernels().norm(SlicedTensor(x).matrix(), weights, y.matrix());
  EXPECT_LE(relative_error(y.values(), oracle().output), kTolerance);
  EXPECT_TRUE(y.surroundings_intact());
}

TEST_P(Norm, InputGradientWithAndWithoutTheBranchAround) {
  const SlicedTensor dx(rows, columns), with_residual(rows, columns);
  const at::Tensor residual = random_tensor({rows, columns}, 5);
  kernels().norm_input_grad(SlicedTensor(dy).matrix(), SlicedTensor(x).matrix(), weights, {}, dx.matrix());
  kernels().norm_input_grad(SlicedTensor(dy).matrix(), SlicedTensor(x).matrix(), weights,
                            SlicedTensor(residual).matrix(), with_residual.matrix());
  const at::Tensor exact = oracle().gradients[0];
  // Of one column the output hardly depends on x: what is left of the gradient is rounding, measured against dy, times
  // the inverse deviation, 1 / sqrt(1e-5) = 316 where the deviation is 0.
  const double size = (columns == 1 ? dy : exact).norm().item<double>();
  const double tolerance = columns == 1 ? 316 * 1e-7 : kTolerance;
  EXPECT_LE((dx.values() - exact).norm().item<double>(), tolerance * size);
  EXPECT_LE(relative_error(with_residual.values(), exact + residual), tolerance);
  EXPECT_TRUE(dx.surroundings_intact());
}

TEST_P(Norm, WeightGradient) {
  const at::Tensor dgain = at::empty({columns}), dbias = at::empty({columns});
  const at::Tensor before = random_tensor({columns}, 6);
  const at::Tensor added_gain = before.clone(), added_bias = before.clone();
  const SlicedTensor of_dy(dy), of_x(x);
  kernels().norm_weight_grad(of_dy.matrix(), of_x.matrix(), weights, vector_of(dgain),
                             has_bias ? vector_of(dbias) : Vector{}, Into::overwrite);
  kernels().norm_weight_grad(of_dy.matrix(), of_x.matrix(), weights, vector_of(added_gain),
                             has_bias ? vector_of(added_bias) : Vector{}, Into::add);
  const Oracle exact = oracle();
  EXPECT_LE(relative_error(dgain, exact.gradients[1]), kTolerance);
  EXPECT_LE(relative_error(added_gain, exact.gradients[1] + before), kTolerance);
  if (has_bias) {
    EXPECT_LE(relative_error(dbias, exact.gradients[2]), kTolerance);
    EXPECT_LE(relative_error(added_bias, exact.gradients[2] + before), kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Norm,
                         testing::Values(NormCase{1, 1, true}, NormCase{1, 1, false}, NormCase{3, 7, true},
                                         NormCase{3, 7, false}, NormCase{131, 65, true}, NormCase{131, 65, false},
                                         NormCase{64, 512, true}));

}  // namespace
}  // namespace weft
