// JSON as text that is always valid UTF-8. Paths, flags and scripts from outside may hold any bytes; the library throws
// where a string is not UTF-8, so no other place calls its dump() (tests/hygiene_test.py).
#pragma once

#include <string>

namespace weft {

// Bytes that are not UTF-8 become replacement characters. What must be read back as it was is refused where it comes
// in. With `indent` below 0 the text is one line.
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace weft
