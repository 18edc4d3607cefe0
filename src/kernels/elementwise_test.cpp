#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 2e-6;
const std::vector<std::pair<std::int64_t, std::int64_t>> kSizes = {{1, 1}, {3, 5}, {7, 129}};

// 0.5 x (1 + erf(x / sqrt 2))
at::Tensor exact_gelu(const at::Tensor& x) {
  return 0.5 * x * (1 + at::erf(x * std::sqrt(0.5)));
}

TEST(Gelu, AgreesWithTheErrorFunctionOverItsWholeRange) {
  const at::Tensor x = at::linspace(-12, 12, 4801).view({1, -1}).contiguous();
  const SlicedTensor y(1, x.size(1)), dx(1, x.size(1));
  const at::Tensor ones = at::ones_like(x);
  kernels().gelu(SlicedTensor(x).matrix(), y.matrix());
  kernels().gelu_input_grad(SlicedTensor(ones).matrix(), SlicedTensor(x).matrix(), dx.matrix());
  const Oracle oracle = ask_oracle([](const auto& in) { return exact_gelu(in[0]); }, {x}, ones);
  // fp32 holds the factor (1 + erf) / 2 to 6e-8, and x multiplies that.
  EXPECT_LE(((y.values() - oracle.output) / x.abs().clamp_min(1)).abs().max().item<double>(), 5e-7);
  EXPECT_LE((dx.values() - oracle.gradients[0]).abs().max().item<double>(), 1e-6);
}

TEST(Gelu, Slices) {
  for (const auto& [rows, columns] : kSizes) {
    const at::Tensor x = random_tensor({rows, columns}, 1), dy = random_tensor({rows, columns}, 2);
    const SlicedTensor y(rows, columns), dx(rows, columns);
    kernels().gelu(SlicedTensor(x).matrix(), y.matrix());
    kernels().gelu_input_grad(SlicedTensor(dy).matrix(), SlicedTensor(x).matrix(), dx.matrix());
    const Oracle oracle = ask_oracle([](const auto& in) { return exact_gelu(in[0]); }, {x}, dy);
    EXPECT_LE(relative_error(y.values(), oracle.output), kTolerance);
    EXPECT_LE(relative_error(dx.values(), oracle.gradients[0]), kTolerance);
    EXPECT_TRUE(y.surroundings_intact() && dx.surroundings_intact());
  }
}

TEST(Gelu, KeepsNotANumber) {
  const at::Tensor x = at::full({1, 9}, std::nan(""));
  const SlicedTensor y(1, 9), dx(1, 9);
  kernels().gelu(SlicedTensor(x).matrix(), y.matrix());
  kernels().gelu_input_grad(SlicedTensor(at::ones({1, 9})).matrix(), SlicedTensor(x).matrix(), dx.matrix());
  EXPECT_TRUE(y.values().isnan().all().item<bool>());
  EXPECT_TRUE(dx.values().isnan().all().item<bool>());
}

TEST(Swiglu, Slices) {
  for (const auto& [rows, columns] : kSizes) {
    const at::Tensor x = 3 * random_tensor({rows, 2 * columns}, 1), dy = random_tensor({rows, columns}, 2);
    const SlicedTensor y(rows, columns), dx(rows, 2 * columns);
    kernels().swiglu(SlicedTensor(x).matrix(), y.matrix());
    kernels().swiglu_input_grad(SlicedTensor(dy).matrix(), SlicedTensor(x).matrix(), dx.matrix());
    const Oracle oracle = ask_oracle(
        [](const auto& in) {
          const auto halves = in[0].chunk(2, 1);
          return halves[0] * at::sigmoid(halves[0]) * halves[1];
        },
        {x}, dy);
    EXPECT_LE(relative_error(y.values(), oracle.output), kTolerance);
    EXPECT_LE(relative_error(dx.values(), oracle.gradients[0]), kTolerance);
    EXPECT_TRUE(y.surroundings_intact() && dx.surroundings_intact());
  }
}

TEST(Swiglu, ClosedGatesGiveNothing) {
  const at::Tensor x = at::tensor({-200.0F, -1000.0F, 3.0F, 5.0F}).view({1, 4});
  const SlicedTensor y(1, 2);
  kernels().swiglu(SlicedTensor(x).matrix(), y.matrix());
  EXPECT_LE(y.values().abs().max().item<double>(), 1e-30);
}

TEST(Add, Slices) {
  for (const auto& [rows, columns] : kSizes) {
    const at::Tensor a = random_tensor({rows, columns}, 1), b = random_tensor({rows, columns}, 2);
    const SlicedTensor sum(rows, columns);
    kernels().add(SlicedTensor(a).matrix(), SlicedTensor(b).matrix(), sum.matrix());
    EXPECT_TRUE(sum.values().equal(a + b));
    EXPECT_TRUE(sum.surroundings_intact());
  }
}

TEST(Copy, CopiesWhatIsInTheSlice) {
  const at::Tensor x = random_tensor({17, 9}, 1);
  const SlicedTensor from(x), to(17, 9);
  kernels().copy(from.matrix(), to.matrix());
  EXPECT_TRUE(to.values().equal(x));
  EXPECT_TRUE(to.surroundings_intact());
}

TEST(Fill, SetsEveryElement) {
  const at::Tensor x = at::zeros({37});
  kernels().fill(vector_of(x), 2.5F);
  EXPECT_TRUE(x.equal(at::full({37}, 2.5F)));
}

}  // namespace
}  // namespace weft
