// 16-bit floats in software: one value each way, rounded to nearest even. Constant expressions, so that kernels of a
// device share them.
#pragma once

#include <bit>
#include <cstdint>

namespace weft {

constexpr std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // NaN stays NaN
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds by arithmetic: adding and subtracting a power of two of the right size makes the FPU drop the extra bits, to
// nearest even, for subnormal results too.
constexpr std::uint16_t f16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U;
  } else if (magnitude >= 0x477ff000U) {  // 65520 and above round to infinity
    half = 0x7c00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: subnormal, units of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  } else {
    half = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

constexpr float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | (magnitude << 13) | 0x7f800000U);
  // Subnormals have value magnitude 2^-24; scaling by 2^112 moves the exponent bias of all others.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

}  // namespace weft
