// Writes JSON as valid UTF-8. Paths, flags and scripts may hold any bytes, and the library's dump() throws on invalid
// UTF-8, so only this file calls it (tests/hygiene_test.py checks that).
#pragma once

#include <string>

namespace weft {

// Invalid bytes become replacement characters. Text that must be read back unchanged is refused where it is read. With
// `indent` below 0 the result is one line.
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace weft
