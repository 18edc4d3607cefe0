// Numbers of JSON, read without going through floating point.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

// The text of a number; its value is exact, because it is computed from the digits.
struct JsonNumber {
  std::string_view text;  // valid until the stream's next token

  // Distinguishes floats from ints as Python's json does: by a point or an exponent.
  bool has_fraction() const {
    for (const char c : text) {
      if (c == '.' || c == 'e' || c == 'E') return true;
    }
    return false;
  }
  // Returns value * 10^digits with halves rounded away from zero; nothing for NaN, Infinity and what is not within
  // 2^61.
  std::optional<std::int64_t> scaled(int digits) const;
};

}  // namespace weft
