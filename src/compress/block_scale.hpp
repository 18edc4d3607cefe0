// What formats with a scale per block share on processors: finding the scale, and floats among bytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "compress/element_codes.hpp"

namespace weft {

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
  for (const float value : values.subspan(i)) take(lanes[0], value);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] = std::max(lanes[lane], lanes[lane + half]);
  }
  return lanes[0];
}

// Finds the scale that maps the largest magnitude to `largest_code`.
inline BlockScale block_scale(std::span<const float> values, float largest_code) {
  return scale_of_magnitude(largest_magnitude_bits(values), largest_code);
}

inline void put_float(float value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

inline float get_float(const std::byte* from) {
  float value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace weft
