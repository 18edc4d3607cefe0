// Arrays of short rows of integers, e.g. "order": [[3, 0], [7, 1]]: each column has a name and a range. A row may begin
// with one of a list of names.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"
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

// The integers of a row after the first `skipped` items, which mean something else.
template <std::size_t N>
std::array<std::int64_t, N> row_integers(const nlohmann::json& item, const std::string& place,
                                         const std::array<JsonColumn, N>& columns, std::size_t skipped = 0) {
  std::array<std::int64_t, N> row{};
  for (std::size_t i = 0; i < N; ++i) {
    const nlohmann::json& value = item[skipped + i];
    if (fits_column(value, columns[i], row[i])) continue;
    fail("{}: {} {} is not an integer in {}..{}", place, columns[i].name,
         value.is_number() ? json_text(value) : fmt::format("of type {}", value.type_name()), columns[i].min,
         columns[i].max);
  }
  return row;
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
    rows.push_back(row_integers(item, place, columns));
  }
  return rows;
}

// Returns which of `names` a value is. `what` says what the names are, `place` where the value stands.
inline std::size_t place_among(const std::vector<std::string>& names, const nlohmann::json& name, const char* what,
                               const std::string& place) {
  const std::string text = name.is_string() ? name.get<std::string>() : json_text(name);
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) {
    const std::string shown = text.substr(0, 16);
    fail("{}: {} '{}' is not known{}", place, what, shown, suggestion(shown, names));
  }
  return static_cast<std::size_t>(found - names.begin());
}

// A row that begins with one of several names, e.g. ["weight", 7, 1].
template <std::size_t N>
struct NamedRow {
  std::size_t name;  // its place among the names
  std::array<std::int64_t, N> integers;
};
// `what`: of what kind the names are. No rows where the key is absent.
template <std::size_t N>
std::vector<NamedRow<N>> named_rows(const JsonObject& object, const std::string& key, const char* what,
                                    const std::vector<std::string>& names, const std::array<JsonColumn, N>& columns) {
  std::vector<NamedRow<N>> rows;
  if (!object.has(key)) return rows;
  for (const nlohmann::json& item : object.array(key)) {
    const std::string place = fmt::format("{}: key '{}'[{}]", object.where(), key, rows.size());
    if (!item.is_array() || item.size() != N + 1) {
      std::string wanted = what;
      for (const JsonColumn& column : columns) wanted += fmt::format(", {}", column.name);
      fail("{}: this is not [{}]", place, wanted);
    }
    rows.push_back({place_among(names, item[0], what, place), row_integers(item, place, columns, 1)});
  }
  return rows;
}

}  // namespace weft
