// Names of enumerations whose values count from 0.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace weft {

// `names` has the names in the order of the values.
template <class Enum>
constexpr std::string_view enum_name(std::span<const std::string_view> names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() ? names[index] : "?";
}

// Splits `Count` names with one space between them. Another number of names does not compile.
template <std::size_t Count>
consteval std::array<std::string_view, Count> split_names(std::string_view text) {
  std::array<std::string_view, Count> names;
  for (std::size_t i = 0; i < Count; ++i) {
    const std::size_t end = text.find(' ');
    if ((end == std::string_view::npos) != (i + 1 == Count)) throw "another number of names";
    names[i] = text.substr(0, end);
    text.remove_prefix(i + 1 == Count ? text.size() : end + 1);
  }
  return names;
}

}  // namespace weft
