// What formats with a scale per block share: the scale, and random numbers that need no state.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

namespace weft {

inline constexpr std::int64_t kScaledBlock = 256;  // elements that share a scale

// Blocks whose largest magnitude is below this are encoded as zeros: dividing by it could overflow.
inline constexpr float kSmallestMagnitude = 0x1p-100F;

// A block's scale, and what its values are multiplied by before they are rounded.
struct BlockScale {
  float scale = 0;  // NaN where a value is not finite
  float inverse = 0;
};

// Returns the bits of the largest magnitude, compared as integers, among which infinity and NaN are the largest. Lanes
// keep several vector registers busy.
inline std::int32_t largest_magnitude_bits(std::span<const float> values) {
  constexpr std::size_t kLanes = 16;
  std::array<std::int32_t, kLanes> lanes{};
  const auto take = [](std::int32_t& lane, float value) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(value) & 0x7fffffff;
    lane = bits > lane ? bits : lane;
  };
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) take(lanes[lane], values[i + lane]);
  }
  for (; i < values.size(); ++i) take(lanes[0], values[i]);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] = std::max(lanes[lane], lanes[lane + half]);
  }
  return lanes[0];
}

// Finds the scale that maps the largest magnitude to `largest_code`.
inline BlockScale block_scale(std::span<const float> values, float largest_code) {
  const std::int32_t largest = largest_magnitude_bits(values);
  if (largest >= 0x7f800000) return {std::numeric_limits<float>::quiet_NaN(), 0};
  const auto magnitude = std::bit_cast<float>(largest);
  if (magnitude < kSmallestMagnitude) return {};
  return {magnitude / largest_code, largest_code / magnitude};
}

inline void put_float(float value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

inline float get_float(const std::byte* from) {
  float value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// A random number in [0, 1) for element i of a block: 24 bits of a mixing function of 32 bits (Wellons 2018).
inline float unit_random(std::uint32_t draw, std::uint32_t i) {
  std::uint32_t x = draw + i * 0x9e3779b9U;
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  x ^= x >> 16;
  return static_cast<float>(static_cast<std::int32_t>(x >> 8)) * 0x1p-24F;
}

}  // namespace weft
