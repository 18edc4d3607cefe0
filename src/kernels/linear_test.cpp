#include <gtest/gtest.h>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 2e-6;

struct Sizes {
  std::int64_t tokens, in, out;
};
class Linear : public testing::TestWithParam<Sizes> {
 protected:
  at::Tensor x = random_tensor({GetParam().tokens, GetParam().in}, 1);
  at::Tensor w = random_tensor({GetParam().out, GetParam().in}, 2);
  at::Tensor bias = random_tensor({GetParam().out}, 3);
  at::Tensor dy = random_tensor({GetParam().tokens, GetParam().out}, 4);
  Oracle oracle = ask_oracle([](const auto& in) { return in[0].matmul(in[1].t()) + in[2]; }, {x, w, bias}, dy);
};

TEST_P(Linear, ForwardOfSlices) {
  const SlicedTensor y(x.size(0), w.size(0));
  kernels().linear(SlicedTensor(x).matrix(), SlicedTensor(w).matrix(), vector_of(bias), y.matrix());
  EXPECT_LE(relative_error(y.values(), oracle.output), kTolerance);
  EXPECT_TRUE(y.surroundings_intact());
}

TEST_P(Linear, ForwardAddsToWhatIsThere) {
  const at::Tensor before = random_tensor({x.size(0), w.size(0)}, 5);
  const SlicedTensor with_bias(before), without(before);
  kernels().linear(SlicedTensor(x).matrix(), SlicedTensor(w).matrix(), vector_of(bias), with_bias.matrix(), Into::add);
  kernels().linear(SlicedTensor(x).matrix(), SlicedTensor(w).matrix(), {}, without.matrix(), Into::add);
  EXPECT_LE(relative_error(with_bias.values(), oracle.output + before), kTolerance);
  EXPECT_LE(relative_error(without.values(), oracle.output + before - bias), kTolerance);
}

TEST_P(Linear, InputGradient) {
  const at::Tensor before = random_tensor({x.size(0), x.size(1)}, 6);
  const SlicedTensor dx(x.size(0), x.size(1)), added(before);
  kernels().linear_input_grad(SlicedTensor(dy).matrix(), SlicedTensor(w).matrix(), dx.matrix());
  kernels().linear_input_grad(SlicedTensor(dy).matrix(), SlicedTensor(w).matrix(), added.matrix(), Into::add);
  EXPECT_LE(relative_error(dx.values(), oracle.gradients[0]), kTolerance);
  EXPECT_LE(relative_error(added.values(), oracle.gradients[0] + before), kTolerance);
  EXPECT_TRUE(dx.surroundings_intact());
}

TEST_P(Linear, WeightGradient) {
  const at::Tensor before = random_tensor({w.size(0), w.size(1)}, 7), bias_before = random_tensor({w.size(0)}, 8);
  const SlicedTensor dw(w.size(0), w.size(1)), added(before);
  const at::Tensor dbias = at::empty({w.size(0)}), dbias_added = bias_before.clone();
  kernels().linear_weight_grad(SlicedTensor(x).matrix(), SlicedTensor(dy).matrix(), dw.matrix(), vector_of(dbias),
                               Into::overwrite);
  kernels().linear_weight_grad(SlicedTensor(x).matrix(), SlicedTensor(dy).matrix(), added.matrix(),
                               vector_of(dbias_added), Into::add);
  EXPECT_LE(relative_error(dw.values(), oracle.gradients[1]), kTolerance);
  EXPECT_LE(relative_error(dbias, oracle.gradients[2]), kTolerance);
  EXPECT_LE(relative_error(added.values(), oracle.gradients[1] + before), kTolerance);
  EXPECT_LE(relative_error(dbias_added, oracle.gradients[2] + bias_before), kTolerance);
  EXPECT_TRUE(dw.surroundings_intact());
}

TEST_P(Linear, WeightGradientOfPartsOfTheTokensAddsUp) {
  const std::int64_t half = x.size(0) / 2;
  const SlicedTensor of_x(x), of_dy(dy), dw(w.size(0), w.size(1));
  kernels().linear_weight_grad(of_x.matrix().row_slice(0, half), of_dy.matrix().row_slice(0, half), dw.matrix(), {},
                               Into::overwrite);
  kernels().linear_weight_grad(of_x.matrix().row_slice(half, x.size(0)), of_dy.matrix().row_slice(half, x.size(0)),
                               dw.matrix(), {}, Into::add);
  EXPECT_LE(relative_error(dw.values(), oracle.gradients[1]), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Linear,
                         testing::Values(Sizes{1, 1, 1}, Sizes{1, 7, 5}, Sizes{3, 1, 9}, Sizes{17, 33, 1},
                                         Sizes{67, 31, 45}, Sizes{200, 64, 129}));

}  // namespace
}  // namespace weft
