// Reading JSON that people write: every mistake becomes an Error that names the file, the key, the value and
// what was allowed, e.g. "cluster.json: links[3]: key 'src': value 9 is not an integer in 0..7".
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace weft {

// Throws Error with the byte position where the text is not JSON or nests more than 64 levels deep.
nlohmann::json parse_json(const std::string& text, const std::string& file_name);

// A view of one JSON object together with the words that say where it stands; the json must outlive it.
// The `_or` getters return the fallback where the key is absent or null; all others need it.
class JsonObject {
 public:
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  static constexpr double kNoBound = std::numeric_limits<double>::max();

  // `where` is the file name, or a place in it such as "plan.json: ops[12]".
  JsonObject(const nlohmann::json& value, std::string where);

  bool has(const std::string& key) const;      // present and not null
  bool is_null(const std::string& key) const;  // present and null
  const std::string& where() const { return where_; }

  std::int64_t integer(const std::string& key, std::int64_t min, std::int64_t max = kNoLimit) const;
  std::int64_t integer_or(const std::string& key, std::int64_t fallback, std::int64_t min,
                          std::int64_t max = kNoLimit) const;
  double number(const std::string& key, double min, double max = kNoBound) const;
  double number_or(const std::string& key, double fallback, double min, double max = kNoBound) const;
  std::string string(const std::string& key) const;
  std::string string_or(const std::string& key, const std::string& fallback) const;
  bool boolean(const std::string& key) const;
  bool boolean_or(const std::string& key, bool fallback) const;
  // The position in `names` of the string under `key`; an unknown one gets the nearest name suggested.
  std::size_t one_of(const std::string& key, std::span<const std::string> names) const;

  const nlohmann::json& array(const std::string& key) const;
  std::vector<std::int64_t> integers(const std::string& key, std::int64_t min, std::int64_t max = kNoLimit) const;
  std::vector<double> numbers(const std::string& key, double min, double max = kNoBound) const;
  std::vector<std::string> strings(const std::string& key) const;
  JsonObject object(const std::string& key) const;
  std::vector<JsonObject> objects(const std::string& key) const;

  // Throws on the first key that is not in `known`, suggesting the nearest one.
  void allow_only(std::span<const std::string> known) const;

  // "WHERE: key 'KEY': value VALUE is not WANTED" (or "... is missing, WANTED is needed"), for checks of the
  // caller.
  [[noreturn]] void reject(const std::string& key, const std::string& wanted) const;

 private:
  const nlohmann::json* find(const std::string& key) const;  // nullptr where absent or null
  const nlohmann::json& need(const std::string& key, const std::string& wanted) const;

  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace weft
