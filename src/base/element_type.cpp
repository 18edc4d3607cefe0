#include "base/element_type.hpp"

#include <array>

namespace weft {
namespace {

constexpr std::array<std::string_view, 7> kNames{"fp32", "bf16", "fp16", "fp8", "i32", "i64", "u8"};

}  // namespace

std::string_view name_of(ElementType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kNames.size() ? kNames[index] : "?";
}

std::optional<ElementType> parse_element_type(std::string_view name) {
  if (name == "f32") return ElementType::fp32;
  if (name == "f16") return ElementType::fp16;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ElementType>(i);
  }
  return std::nullopt;
}

}  // namespace weft
