// Bytes as text that stands in any HTML attribute or element: RFC 4648, section 4.
#pragma once

#include <string>
#include <string_view>

namespace weft {

std::string base64(std::string_view bytes);

// Whether the text consists of base64's characters only.
bool is_base64(std::string_view text);

// The bytes of a text that is_base64; all from the first '=' on is filling.
std::string bytes_of_base64(std::string_view text);

}  // namespace weft
