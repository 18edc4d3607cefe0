// One pass over gradient, weights and moments, where ATen takes eight for AdamW.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"

namespace weft::aten {
namespace {

constexpr std::int64_t kGrain = 1 << 15;

bool is_finite(const Vector& x) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::atomic<bool> finite = true;
  in_ranges(x.size, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const float* values = floats(x);
    std::uint32_t found = 0;
    for (std::int64_t i = begin; i < end; ++i)
      found |= (std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent ? 1U : 0U;
    if (found != 0) finite = false;
  });
  return finite;
}

struct AdamFactors {
  float scale, keep_first, take_first, keep_second, take_second, decay, rate, inverse_root, epsilon;
};

AdamFactors factors_of(const AdamSettings& settings, std::int64_t step, double scale) {
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(step));
  return {static_cast<float>(scale),
          static_cast<float>(settings.beta1),
          static_cast<float>(1 - settings.beta1),
          static_cast<float>(settings.beta2),
          static_cast<float>(1 - settings.beta2),
          static_cast<float>(1 - settings.learning_rate * settings.weight_decay),
          static_cast<float>(settings.learning_rate / correction1),
          static_cast<float>(1 / std::sqrt(correction2)),
          static_cast<float>(settings.epsilon)};
}

void adam_range(AdamFactors f, std::int64_t count, const float* __restrict gradient, float* __restrict weights,
                float* __restrict first, float* __restrict second) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float scaled = gradient[i] * f.scale;
    const float mean = first[i] * f.keep_first + scaled * f.take_first;
    const float square = second[i] * f.keep_second + scaled * scaled * f.take_second;
    first[i] = mean;
    second[i] = square;
    weights[i] = weights[i] * f.decay - f.rate * (mean / (__builtin_sqrtf(square) * f.inverse_root + f.epsilon));
  }
}

struct SgdFactors {
  float scale, decay, keep, rate;
};

void sgd_range(SgdFactors f, std::int64_t count, const float* __restrict gradient, float* __restrict weights) {
  for (std::int64_t i = 0; i < count; ++i) weights[i] -= f.rate * (gradient[i] * f.scale + f.decay * weights[i]);
}

void momentum_range(SgdFactors f, std::int64_t count, const float* __restrict gradient, float* __restrict weights,
                    float* __restrict momentum) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float kept = f.keep * momentum[i] + gradient[i] * f.scale + f.decay * weights[i];
    momentum[i] = kept;
    weights[i] -= f.rate * kept;
  }
}

// Blocks of one size each, so that the sum is the same for every number of threads.
double sum_of_squares(const Vector& x) {
  const std::int64_t blocks = (x.size + kGrain - 1) / kGrain;
  std::vector<double> sums(blocks);
  in_ranges(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const float* values = floats(x) + block * kGrain;
      const std::int64_t count = std::min(kGrain, x.size - block * kGrain);
      double sum = 0;
      for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      sums[block] = sum;
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

double scale_of(const GradientClip& clip) {
  if (clip.square_sum.empty()) return 1;
  const auto square = static_cast<double>(*floats(clip.square_sum));
  return std::min(1.0, clip.limit / (std::sqrt(square) + kClipEpsilon));
}

}  // namespace

void AtenKernels::adam(const AdamSettings& settings, std::int64_t step, const GradientClip& clip,
                       const UpdatedParameter& parameter, bool& finite) {
  finite = is_finite(parameter.gradient);
  if (!finite) return;
  const AdamFactors factors = factors_of(settings, step, scale_of(clip));
  in_ranges(parameter.weights.size, kGrain, [&](std::int64_t begin, std::int64_t end) {
    adam_range(factors, end - begin, floats(parameter.gradient) + begin, floats(parameter.weights) + begin,
               floats(parameter.first_moment) + begin, floats(parameter.second_moment) + begin);
  });
}

void AtenKernels::sgd(const SgdSettings& settings, std::int64_t step, const GradientClip& clip,
                      const UpdatedParameter& parameter, bool& finite) {
  finite = is_finite(parameter.gradient);
  if (!finite) return;
  const SgdFactors factors{static_cast<float>(scale_of(clip)), static_cast<float>(settings.weight_decay),
                           static_cast<float>(settings.momentum), static_cast<float>(settings.learning_rate)};
  const Vector& momentum = parameter.first_moment;
  // The first step has no momentum yet: whatever is in that memory, even NaN, is ignored.
  if (settings.momentum != 0 && step == 1) std::fill_n(floats(momentum), momentum.size, 0.0F);
  in_ranges(parameter.weights.size, kGrain, [&](std::int64_t begin, std::int64_t end) {
    float* const weights = floats(parameter.weights) + begin;
    if (settings.momentum != 0)
      momentum_range(factors, end - begin, floats(parameter.gradient) + begin, weights, floats(momentum) + begin);
    else
      sgd_range(factors, end - begin, floats(parameter.gradient) + begin, weights);
  });
}

void AtenKernels::square_sum(std::span<const Vector> parts, const Vector& sum) {
  double total = 0;
  for (const Vector& part : parts) total += sum_of_squares(part);
  *floats(sum) = static_cast<float>(total);
}

void AtenKernels::all_finite(const Vector& x, bool& finite) {
  finite = is_finite(x);
}

}  // namespace weft::aten
