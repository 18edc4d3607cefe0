// What formats do to one element, and the scale of a block: constant expressions, so that kernels of a device share
// them and give the same bits. Whoever compiles them must not fuse multiplications and additions.
#pragma once

#include <bit>
#include <cstdint>

namespace weft {

inline constexpr std::int64_t kScaledBlock = 256;  // elements that share a scale
inline constexpr std::int64_t kSparseBlock = 4096;
inline constexpr std::int64_t kKeptOneOf = 100;  // elements of a sparse block

// Returns how many elements of a block sparse formats keep.
constexpr std::int64_t kept_of(std::int64_t elements) {
  return (elements + kKeptOneOf - 1) / kKeptOneOf;
}

// Blocks whose largest magnitude is below this are encoded as zeros: dividing by it could overflow.
inline constexpr float kSmallestMagnitude = 0x1p-100F;

// A block's scale, and what its values are multiplied by before they are rounded.
struct BlockScale {
  float scale = 0;  // NaN where a value is not finite
  float inverse = 0;
};

inline constexpr std::int32_t kInfinityBits = 0x7f800000;

constexpr float not_a_number() {
  return std::bit_cast<float>(0x7fc00000U);
}

// Finds the scale that maps the largest magnitude of a block, given as its bits, to `largest_code`.
constexpr BlockScale scale_of_magnitude(std::int32_t largest_bits, float largest_code) {
  if (largest_bits >= kInfinityBits) return {not_a_number(), 0};
  const float magnitude = std::bit_cast<float>(largest_bits);
  if (magnitude < kSmallestMagnitude) return {};
  return {magnitude / largest_code, largest_code / magnitude};
}

// A random number in [0, 1) for element i of a block: 24 bits of a mixing function of 32 bits (Wellons 2018).
constexpr float unit_random(std::uint32_t key, std::uint32_t i) {
  std::uint32_t x = key + i * 0x9e3779b9U;
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  x ^= x >> 16;
  return static_cast<float>(static_cast<std::int32_t>(x >> 8)) * 0x1p-24F;
}

// Returns the key of unit_random() for a block's draw.
constexpr std::uint32_t key_of_draw(std::uint64_t draw) {
  return static_cast<std::uint32_t>(draw ^ (draw >> 32));
}

inline constexpr std::int32_t kLargestInt8 = 127, kLargestInt4 = 7, kInt4Offset = 8;

// Adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits of the sum, for magnitudes below 2^22.
// The largest code stays the largest: the product with the inverse of the scale is off by less than a half.
inline constexpr float kNearestShift = 0x1.8p23F;
constexpr std::int8_t nearest_code(float value, float inverse) {
  return static_cast<std::int8_t>(std::bit_cast<std::int32_t>(value * inverse + kNearestShift));
}

// floor(x + u) with u uniform in [0, 1) is x on average.
constexpr std::int8_t random_code(float value, float inverse, std::int32_t largest, std::uint32_t key,
                                  std::uint32_t i) {
  const float x = value * inverse + unit_random(key, i);
  const auto truncated = static_cast<std::int32_t>(x);
  const std::int32_t code = truncated - (static_cast<float>(truncated) > x ? 1 : 0);
  const std::int32_t above = code < -largest ? -largest : code;
  return static_cast<std::int8_t>(above > largest ? largest : above);
}

// TernGrad's codes: 0, 1 for + and 2 for -.
constexpr std::uint32_t ternary_code(float value, float inverse, std::uint32_t key, std::uint32_t i) {
  const float magnitude = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
  const bool kept = unit_random(key, i) < magnitude * inverse;
  return !kept ? 0U : value > 0 ? 1U : 2U;
}

// OCP's 8-bit floats: a sign, an exponent, bits of mantissa. `largest` is the code of the largest number.
template <int mantissa, int bias, std::uint32_t largest>
struct Fp8Codes {
  // Rounds to nearest, ties to even. Below the smallest normal number, adding a power of two whose last bit is that of
  // the subnormal numbers makes the FPU round.
  static constexpr std::uint8_t code(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 24) & 0x80U, magnitude = bits & 0x7fffffffU;
    constexpr int kDropped = 23 - mantissa;
    constexpr std::uint32_t kSmallestNormal = power_bits(1 - bias), kMagic = power_bits(1 - bias - mantissa + 23);
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic)) - kMagic;
    const std::uint32_t odd = (magnitude >> kDropped) & 1U;
    const std::uint32_t normal =
        (magnitude - (static_cast<std::uint32_t>(127 - bias) << 23) + ((1U << (kDropped - 1)) - 1U) + odd) >> kDropped;
    const std::uint32_t rounded = magnitude < kSmallestNormal ? subnormal : normal;
    return static_cast<std::uint8_t>(sign | (rounded > largest ? largest : rounded));
  }
  static constexpr float value(std::uint32_t code) {
    const std::uint32_t fraction = code & ((1U << mantissa) - 1U);
    const int exponent = static_cast<int>((code & 0x7fU) >> mantissa);
    const float significand = static_cast<float>(exponent == 0 ? fraction : fraction + (1U << mantissa));
    const int power = (exponent == 0 ? 1 : exponent) - bias - mantissa;
    const float magnitude = significand * std::bit_cast<float>(power_bits(power));
    return (code & 0x80U) != 0 ? -magnitude : magnitude;
  }
  static constexpr float largest_value() { return value(largest); }

 private:
  static constexpr std::uint32_t power_bits(int power) { return static_cast<std::uint32_t>(power + 127) << 23; }
};
using Fp8E4m3 = Fp8Codes<3, 7, 0x7e>;
using Fp8E5m2 = Fp8Codes<2, 15, 0x7b>;

}  // namespace weft
