// Functions that the compiler vectorises inside loops: no branches, no library calls. Errors are against the true
// function, in units of the last place (ulp).
#pragma once

#include <bit>
#include <cstdint>

namespace weft::aten {

// Cephes' expf: below 2 ulp. 0 where the true value is smaller than the smallest normal number; NaN stays NaN.
inline float exponential(float x) {
  constexpr float kHighest = 88.3762626647950F, kLowest = -87.3365447504019F;
  const float bounded = x > kHighest ? kHighest : x < kLowest ? kLowest : x;
  const float power = __builtin_floorf(__builtin_fmaf(bounded, 1.44269504088896341F, 0.5F));
  // ln 2 in two parts; fma, so that the compiler cannot join them again.
  float rest = __builtin_fmaf(power, -0.693359375F, bounded);
  rest = __builtin_fmaf(power, 2.12194440e-4F, rest);
  float sum = 1.9875691500e-4F;
  sum = __builtin_fmaf(sum, rest, 1.3981999507e-3F);
  sum = __builtin_fmaf(sum, rest, 8.3334519073e-3F);
  sum = __builtin_fmaf(sum, rest, 4.1665795894e-2F);
  sum = __builtin_fmaf(sum, rest, 1.6666665459e-1F);
  sum = __builtin_fmaf(sum, rest, 5.0000001201e-1F);
  sum = __builtin_fmaf(sum, rest * rest, rest + 1.0F);
  const auto exponent = static_cast<std::int32_t>(power) + 127;
  const float scaled = sum * std::bit_cast<float>(exponent << 23);
  return x < kLowest ? 0.0F : scaled;
}

// The rational approximation of Eigen and XLA, an odd polynomial over an even one; absolute error below 4e-7.
inline float error_function(float x) {
  const float bounded = x > 4.0F ? 4.0F : x < -4.0F ? -4.0F : x;
  const float square = bounded * bounded;
  float above = -2.72614225801306e-10F;
  above = __builtin_fmaf(above, square, 2.77068142495902e-08F);
  above = __builtin_fmaf(above, square, -2.10102402082508e-06F);
  above = __builtin_fmaf(above, square, -5.69250639462346e-05F);
  above = __builtin_fmaf(above, square, -7.34990630326855e-04F);
  above = __builtin_fmaf(above, square, -2.95459980854025e-03F);
  above = __builtin_fmaf(above, square, -1.60960333262415e-02F);
  float below = -1.45660718464996e-05F;
  below = __builtin_fmaf(below, square, -2.13374055278905e-04F);
  below = __builtin_fmaf(below, square, -1.68282697438203e-03F);
  below = __builtin_fmaf(below, square, -7.37332916720468e-03F);
  below = __builtin_fmaf(below, square, -1.42647390514189e-02F);
  return bounded * above / below;
}

inline float sigmoid(float x) {
  return 1.0F / (1.0F + exponential(-x));
}

// Returns the largest of `count` > 0 values. It keeps one maximum per lane, because compilers do not vectorise a
// maximum over a sequence that may hold NaN.
inline float largest(const float* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  float lanes[kLanes];
  for (float& lane : lanes) lane = values[0];
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  float best = lanes[0];
  for (const float lane : lanes) best = lane > best ? lane : best;
  for (; i < count; ++i) best = values[i] > best ? values[i] : best;
  return best;
}

// values = exp(values - shift); returns their sum.
inline float exponentiate(const float* values, std::int64_t count, float shift, float* exponentials) {
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = exponential(values[i] - shift);
    exponentials[i] = value;
    sum += value;
  }
  return sum;
}

}  // namespace weft::aten
