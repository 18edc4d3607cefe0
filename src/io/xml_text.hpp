// Text inside XML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Names may hold any bytes, XML may not: all but printable ASCII becomes a question mark.
inline std::string xml_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return escaped;
}

}  // namespace weft
