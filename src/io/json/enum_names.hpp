// Lists the names of an enum's values in their order, for JsonObject::one_of.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace weft {

// For an enum that counts from 0 to `last` and has a name_of.
template <class Enum>
std::vector<std::string> names_up_to(Enum last) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(last); ++i) names.emplace_back(name_of(static_cast<Enum>(i)));
  return names;
}

// Of a list of values that have a name_of.
template <class Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto& value : values) names.emplace_back(name_of(value));
  return names;
}

}  // namespace weft
