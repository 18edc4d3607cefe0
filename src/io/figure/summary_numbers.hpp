// Numbers of a summary, which may come from a file that anyone wrote: whatever is no number counts as absent.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/text.hpp"
#include "base/units.hpp"

namespace weft {

inline std::optional<double> number_in(const nlohmann::ordered_json& object, const std::string& key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number()) return {};
  const auto value = object[key].get<double>();
  constexpr double kMost = 1e18;  // no time, size or rate of a training step is near it
  return std::isfinite(value) && std::abs(value) <= kMost ? std::optional(value) : std::nullopt;
}
// Absent and negative numbers are 0: no bar has such a length.
inline double length_in(const nlohmann::ordered_json& object, const std::string& key) {
  return std::max(0.0, number_in(object, key).value_or(0));
}
inline std::string string_in(const nlohmann::ordered_json& object, const std::string& key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}
// The object or array under the key; null where there is none.
inline const nlohmann::ordered_json& member_of(const nlohmann::ordered_json& object, const std::string& key) {
  static const nlohmann::ordered_json kNull;
  return object.is_object() && object.contains(key) ? object[key] : kNull;
}

inline std::string seconds_words(double seconds) {
  return format_time(nanos_from_seconds(std::min(seconds, 1e9)));
}
inline std::string bytes_words(double bytes) {
  return format_bytes(Bytes{static_cast<std::int64_t>(bytes)});
}

}  // namespace weft
