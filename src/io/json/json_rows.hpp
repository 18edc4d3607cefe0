// Arrays of short integer rows, e.g. "reads": [[3, 0], [7, 1]]: each column has a name and a range.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "io/json/json_reader.hpp"

namespace weft {

struct JsonColumn {
  const char* name;
  std::int64_t min, max;
};

// The value where it is an integer within the column's range.
inline bool fits_column(const nlohmann::json& value, const JsonColumn& column, std::int64_t& result) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(JsonObject::kNoLimit)) {
    return false;
  }
  result = value.get<std::int64_t>();
  return column.min <= result && result <= column.max;
}

// No rows where the key is absent.
template <std::size_t N>
std::vector<std::array<std::int64_t, N>> json_rows(const JsonObject& object, const std::string& key,
                                                   const std::array<JsonColumn, N>& columns) {
  std::vector<std::array<std::int64_t, N>> rows;
  if (!object.has(key)) return rows;
  const nlohmann::json& list = object.array(key);
  rows.reserve(list.size());
  for (const nlohmann::json& item : list) {
    const std::string place = fmt::format("{}: key '{}'[{}]", object.where(), key, rows.size());
    if (!item.is_array() || item.size() != N) {
      std::string wanted;
      for (const JsonColumn& column : columns) wanted += fmt::format("{}{}", wanted.empty() ? "" : ", ", column.name);
      fail("{}: {} is not [{}]", place,
           item.is_array() ? fmt::format("an array of {}", item.size()) : fmt::format("a {}", item.type_name()),
           wanted);
    }
    std::array<std::int64_t, N> row{};
    for (std::size_t i = 0; i < N; ++i) {
      if (fits_column(item[i], columns[i], row[i])) continue;
      fail("{}: {} {} is not an integer in {}..{}", place, columns[i].name,
           item[i].is_number() ? json_text(item[i]) : fmt::format("of type {}", item[i].type_name()), columns[i].min,
           columns[i].max);
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace weft
