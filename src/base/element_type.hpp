// The type of a number in memory or on a link: one enumeration for models, plans, collectives, kernels and files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.hpp"

namespace weft {

// Files and messages between ranks use these numbers, so the order must not change. Floats come first (is_float).
// u8 is a byte of what a compressor made.
enum class ElementType : std::uint8_t { fp32, bf16, fp16, fp8, i32, i64, u8 };

constexpr Bytes size_of(ElementType type) {
  switch (type) {
    case ElementType::fp8:
    case ElementType::u8:
      return {1};
    case ElementType::bf16:
    case ElementType::fp16:
      return {2};
    case ElementType::fp32:
    case ElementType::i32:
      return {4};
    case ElementType::i64:
      return {8};
  }
  return {0};
}

constexpr bool is_float(ElementType type) {
  return type <= ElementType::fp8;
}

std::string_view name_of(ElementType type);
// Finds a type by its name. f32 and f16 are accepted for fp32 and fp16.
std::optional<ElementType> parse_element_type(std::string_view name);

}  // namespace weft
