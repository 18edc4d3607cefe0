// The only source that meets the JSON library's exceptions on the way in; they become weft::Error here.
#include "io/json/json_reader.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

using nlohmann::json;

// Far above the depth of our formats, and shallow enough for the library's own recursion (printing, comparing).
constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxQuoted = 80;

void refuse_deep_nesting(const std::string& text, const std::string& file_name) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) {
        fail("{}: not usable JSON at byte {}: nested more than {} levels deep", file_name, at + 1, kMaxDepth);
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

// Shortens user text for a message, cutting between UTF-8 characters.
std::string shortened(const std::string& text) {
  if (text.size() <= kMaxQuoted) return text;
  std::size_t end = kMaxQuoted;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

// The library's text is "[json.exception.parse_error.101] parse error at line 1, column 2: ...; last read: '...'". The
// part that quotes the file may be long; the rest is not.
std::string parse_error_in_words(const std::string& what) {
  const std::size_t reason = what.find("] ");
  const std::string words = reason == std::string::npos ? what : what.substr(reason + 2);
  const std::size_t last_read = words.find("; last read: ");
  if (last_read == std::string::npos) return words;
  return words.substr(0, last_read) + shortened(words.substr(last_read));
}

// What the library says of a number that is out of range ends with that number in quotes.
std::string number_in_words(const std::string& message) {
  const std::size_t end = message.rfind('\''), begin = end == std::string::npos ? end : message.rfind('\'', end - 1);
  return begin == std::string::npos ? std::string("in it") : shortened(message.substr(begin + 1, end - begin - 1));
}

// Large arrays and objects are named by size: nobody reads them in a message.
std::string quoted(const json& value) {
  if (value.is_array() && value.size() > 8) return fmt::format("(array of {} items)", value.size());
  if (value.is_object() && !value.empty()) return fmt::format("(object with {} keys)", value.size());
  return shortened(json_text(value));
}

[[noreturn]] void reject_value(const std::string& place, const json& value, const std::string& wanted) {
  fail("{}: value {} is not {}", place, quoted(value), wanted);
}

std::string integer_in(std::int64_t min, std::int64_t max) {
  if (max == JsonObject::kNoLimit) return fmt::format("an integer of at least {}", min);
  return fmt::format("an integer in {}..{}", min, max);
}

std::string number_in(double min, double max) {
  if (max == JsonObject::kNoBound) return fmt::format("a number of at least {}", min);
  return fmt::format("a number in {}..{}", min, max);
}

std::int64_t to_integer(const std::string& place, const json& value, std::int64_t min, std::int64_t max) {
  // The library stores what exceeds int64 as unsigned, and what exceeds that as a float.
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(JsonObject::kNoLimit));
  if (!fits) reject_value(place, value, integer_in(min, max));
  const auto number = value.get<std::int64_t>();
  if (number < min || number > max) reject_value(place, value, integer_in(min, max));
  return number;
}

double to_number(const std::string& place, const json& value, double min, double max) {
  if (!value.is_number()) reject_value(place, value, number_in(min, max));
  const auto number = value.get<double>();
  if (!(number >= min && number <= max)) reject_value(place, value, number_in(min, max));
  return number;
}

std::string to_string(const std::string& place, const json& value) {
  if (!value.is_string()) reject_value(place, value, "a string");
  return value.get<std::string>();
}

}  // namespace

nlohmann::json parse_json(const std::string& text, const std::string& file_name) {
  refuse_deep_nesting(text, file_name);
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    fail("{}: not JSON at byte {}: {}", file_name, error.byte, parse_error_in_words(error.what()));
  } catch (const json::out_of_range& error) {
    fail("{}: not usable JSON: number {} is beyond {:.3g}, the largest that can be read", file_name,
         number_in_words(error.what()), std::numeric_limits<double>::max());
  } catch (const json::exception& error) {
    fail("{}: not usable JSON: {}", file_name, shortened(error.what()));
  }
}

JsonObject::JsonObject(const json& value, std::string where) : value_(&value), where_(std::move(where)) {
  if (!value.is_object()) fail("{}: value {} is not an object", where_, quoted(value));
}

const json* JsonObject::find(const std::string& key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

const json& JsonObject::need(const std::string& key, const std::string& wanted) const {
  const json* found = find(key);
  if (found == nullptr) reject(key, wanted);
  return *found;
}

bool JsonObject::has(const std::string& key) const {
  return find(key) != nullptr;
}

bool JsonObject::is_null(const std::string& key) const {
  return value_->contains(key) && !has(key);
}

void JsonObject::reject(const std::string& key, const std::string& wanted) const {
  const auto found = value_->find(key);
  if (found == value_->end()) fail("{}: key '{}' is missing: {} is needed", where_, key, wanted);
  reject_value(fmt::format("{}: key '{}'", where_, key), *found, wanted);
}

std::int64_t JsonObject::integer(const std::string& key, std::int64_t min, std::int64_t max) const {
  return to_integer(fmt::format("{}: key '{}'", where_, key), need(key, integer_in(min, max)), min, max);
}

std::int64_t JsonObject::integer_or(const std::string& key, std::int64_t fallback, std::int64_t min,
                                    std::int64_t max) const {
  return has(key) ? integer(key, min, max) : fallback;
}

double JsonObject::number(const std::string& key, double min, double max) const {
  return to_number(fmt::format("{}: key '{}'", where_, key), need(key, number_in(min, max)), min, max);
}

double JsonObject::number_or(const std::string& key, double fallback, double min, double max) const {
  return has(key) ? number(key, min, max) : fallback;
}

std::string JsonObject::string(const std::string& key) const {
  return to_string(fmt::format("{}: key '{}'", where_, key), need(key, "a string"));
}

std::string JsonObject::string_or(const std::string& key, const std::string& fallback) const {
  return has(key) ? string(key) : fallback;
}

bool JsonObject::boolean(const std::string& key) const {
  const json& value = need(key, "true or false");
  if (!value.is_boolean()) reject(key, "true or false");
  return value.get<bool>();
}

bool JsonObject::boolean_or(const std::string& key, bool fallback) const {
  return has(key) ? boolean(key) : fallback;
}

std::size_t JsonObject::one_of(const std::string& key, std::span<const std::string> names) const {
  const std::string text = string(key);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return i;
  }
  const std::string shown = shortened(text);
  fail("{}: key '{}': value '{}' is not known{}", where_, key, shown, suggestion(shown, names));
}

const json& JsonObject::array(const std::string& key) const {
  const json& value = need(key, "an array");
  if (!value.is_array()) reject(key, "an array");
  return value;
}

std::vector<std::int64_t> JsonObject::integers(const std::string& key, std::int64_t min, std::int64_t max) const {
  std::vector<std::int64_t> result;
  for (const json& item : array(key)) {
    result.push_back(to_integer(fmt::format("{}: key '{}'[{}]", where_, key, result.size()), item, min, max));
  }
  return result;
}

std::vector<double> JsonObject::numbers(const std::string& key, double min, double max) const {
  std::vector<double> result;
  for (const json& item : array(key)) {
    result.push_back(to_number(fmt::format("{}: key '{}'[{}]", where_, key, result.size()), item, min, max));
  }
  return result;
}

std::vector<std::string> JsonObject::strings(const std::string& key) const {
  std::vector<std::string> result;
  for (const json& item : array(key)) {
    result.push_back(to_string(fmt::format("{}: key '{}'[{}]", where_, key, result.size()), item));
  }
  return result;
}

JsonObject JsonObject::object(const std::string& key) const {
  return {need(key, "an object"), fmt::format("{}: {}", where_, key)};
}

std::vector<JsonObject> JsonObject::objects(const std::string& key) const {
  std::vector<JsonObject> result;
  for (const json& item : array(key)) result.emplace_back(item, fmt::format("{}: {}[{}]", where_, key, result.size()));
  return result;
}

void JsonObject::allow_only(std::span<const std::string> known) const {
  for (const auto& item : value_->items()) {
    bool found = false;
    for (const std::string& name : known) found = found || name == item.key();
    if (found) continue;
    const std::string shown = shortened(item.key());
    fail("{}: key '{}' is not known{}", where_, shown, suggestion(shown, known));
  }
}

}  // namespace weft
