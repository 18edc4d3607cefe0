#include "io/markup.hpp"

#include <algorithm>
#include <cstdint>

namespace weft {
namespace {

std::uint32_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// How many bytes a character of more than one has by its first one; 0 where no character begins so.
std::size_t length_by_first_byte(std::uint32_t first) {
  if (first >= 0xc2 && first <= 0xdf) return 2;
  if (first >= 0xe0 && first <= 0xef) return 3;
  return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

// The length of the character beyond ASCII that begins at `at`, or 0 where the bytes are none that XML has.
std::size_t length_of_character(std::string_view text, std::size_t at) {
  const std::uint32_t first = byte_at(text, at);
  const std::size_t length = length_by_first_byte(first);
  if (length == 0 || at + length > text.size()) return 0;
  std::uint32_t code = first & (0x7fU >> length);
  for (std::size_t i = at + 1; i < at + length; ++i) {
    if ((byte_at(text, i) & 0xc0U) != 0x80U) return 0;
    code = code << 6 | (byte_at(text, i) & 0x3fU);
  }
  constexpr std::uint32_t kLeastOfThree = 0x800, kLeastOfFour = 0x10000, kMost = 0x10ffff;
  if ((length == 3 && code < kLeastOfThree) || (length == 4 && code < kLeastOfFour) || code > kMost) return 0;
  const bool is_control = code < 0xa0;
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  const bool is_no_character = code == 0xfffe || code == 0xffff;
  return is_control || is_surrogate || is_no_character ? 0 : length;
}

std::string_view escape_of(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    default:
      return "";
  }
}

}  // namespace

std::string markup_text(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (const std::string_view escape = escape_of(c); !escape.empty()) {
      escaped += escape;
      ++at;
    } else if (byte_at(text, at) < 0x80) {
      escaped += c >= ' ' && c <= '~' ? c : '?';
      ++at;
    } else {
      const std::size_t length = length_of_character(text, at);
      escaped += length == 0 ? "?" : text.substr(at, length);
      at += std::max<std::size_t>(length, 1);
    }
  }
  return escaped;
}

}  // namespace weft
