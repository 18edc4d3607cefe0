// The updates of PyTorch's documentation of AdamW and SGD, written out in double precision.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 1e-6;

// A norm of 2 that is clipped to half of it.
struct HalvingClip {
  at::Tensor square = at::full({1}, 4.0F);
  GradientClip clip{vector_of(square), 0.5 * (2 + kClipEpsilon)};
};

bool adam_is_finite(const AdamSettings& settings, std::int64_t step, const GradientClip& clip,
                    const UpdatedParameter& parameter) {
  bool finite = false;
  kernels().adam(settings, step, clip, parameter, finite);
  kernels().synchronize();
  return finite;
}
bool sgd_is_finite(const SgdSettings& settings, std::int64_t step, const GradientClip& clip,
                   const UpdatedParameter& parameter) {
  bool finite = false;
  kernels().sgd(settings, step, clip, parameter, finite);
  kernels().synchronize();
  return finite;
}

TEST(Adam, FollowsTheFormulaOverSeveralSteps) {
  for (const std::int64_t size : {1, 7, 70001}) {
    for (const double decay : {0.0, 0.1}) {
      const AdamSettings settings{.learning_rate = 1e-2, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = decay};
      const at::Tensor weights = random_tensor({size}, 1), first = at::zeros({size}), second = at::zeros({size});
      at::Tensor w = weights.to(at::kDouble), m = first.to(at::kDouble), v = second.to(at::kDouble);
      for (int step = 1; step <= 4; ++step) {
        const at::Tensor gradient = random_tensor({size}, 10 + static_cast<std::uint64_t>(step));
        ASSERT_TRUE(adam_is_finite(settings, step, HalvingClip().clip,
                                   {vector_of(gradient), vector_of(weights), vector_of(first), vector_of(second)}));
        const at::Tensor g = 0.5 * gradient.to(at::kDouble);
        w = w * (1 - 1e-2 * decay);
        m = 0.8 * m + 0.2 * g;
        v = 0.95 * v + 0.05 * g * g;
        w = w - 1e-2 * (m / (1 - std::pow(0.8, step))) / ((v / (1 - std::pow(0.95, step))).sqrt() + 1e-8);
      }
      EXPECT_LE(relative_error(weights, w), kTolerance);
      EXPECT_LE(relative_error(first, m), kTolerance);
      EXPECT_LE(relative_error(second, v), kTolerance);
    }
  }
}

TEST(Sgd, FollowsTheFormulaOverSeveralSteps) {
  for (const double momentum : {0.0, 0.9}) {
    for (const double decay : {0.0, 0.1}) {
      const SgdSettings settings{.learning_rate = 1e-2, .momentum = momentum, .weight_decay = decay};
      // The first step sets the momentum, whatever was there.
      const at::Tensor weights = random_tensor({1003}, 1), kept = at::full({1003}, std::nan(""));
      at::Tensor w = weights.to(at::kDouble), b;
      for (int step = 1; step <= 3; ++step) {
        const at::Tensor gradient = random_tensor({1003}, 10 + static_cast<std::uint64_t>(step));
        ASSERT_TRUE(
            sgd_is_finite(settings, step, HalvingClip().clip,
                          {vector_of(gradient), vector_of(weights), momentum == 0 ? Vector{} : vector_of(kept)}));
        const at::Tensor g = 0.5 * gradient.to(at::kDouble) + decay * w;
        b = step == 1 ? g : momentum * b + g;
        w = w - 1e-2 * b;
      }
      EXPECT_LE(relative_error(weights, w), kTolerance);
    }
  }
}

TEST(Optimizers, ChangeNothingWhereTheGradientIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), infinity, -infinity}) {
    for (const std::int64_t place : {0, 50000, 70000}) {
      const at::Tensor gradient = at::ones({70001}), weights = at::ones({70001}), first = at::zeros({70001}),
                       second = at::zeros({70001});
      gradient[place] = bad;
      const UpdatedParameter parameter{vector_of(gradient), vector_of(weights), vector_of(first), vector_of(second)};
      EXPECT_FALSE(adam_is_finite({}, 1, {}, parameter));
      EXPECT_FALSE(sgd_is_finite({.momentum = 0.5}, 1, {}, parameter));
      bool finite = true;
      kernels().all_finite(parameter.gradient, finite);
      EXPECT_FALSE(finite);
      EXPECT_TRUE(weights.equal(at::ones({70001})));
      EXPECT_TRUE(first.equal(at::zeros({70001})) && second.equal(at::zeros({70001})));
    }
  }
}

// One step of SGD at rate 1 takes from the weights what is left of the gradient.
TEST(GradientClip, IsThatOfPyTorchAndNeverEnlarges) {
  for (const auto& [norm, limit] : std::vector<std::pair<double, double>>{{3, 1.5}, {3, 3}, {0.5, 4}, {0, 1}}) {
    const at::Tensor gradient = at::ones({1}), weights = at::zeros({1}), square = at::full({1}, norm * norm);
    const GradientClip clip{vector_of(square), limit};
    ASSERT_TRUE(sgd_is_finite({.learning_rate = 1}, 1, clip, {vector_of(gradient), vector_of(weights), {}}));
    EXPECT_FLOAT_EQ(weights.item<float>(), static_cast<float>(-std::min(1.0, limit / (norm + 1e-6))));
  }
}

TEST(SquareSum, IsTakenInDoublePrecision) {
  const at::Tensor x = random_tensor({70001}, 1);
  const double exact = x.to(at::kDouble).pow(2).sum().item<double>();
  const at::Tensor sum = at::empty({1});
  const std::array<Vector, 2> parts = {vector_of(x.narrow(0, 0, 40000)), vector_of(x.narrow(0, 40000, 30001))};
  kernels().square_sum(parts, vector_of(sum));
  EXPECT_EQ(sum.item<float>(), static_cast<float>(exact));
  kernels().square_sum({}, vector_of(sum));
  EXPECT_EQ(sum.item<float>(), 0);
}

}  // namespace
}  // namespace weft
