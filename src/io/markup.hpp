// Text as it stands in HTML, XML and SVG, whatever bytes it has: names come from other people's traces.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Escapes what is markup, in elements and in quoted attributes. Control characters and bytes that are not UTF-8 become
// question marks, because XML has no way to write them.
std::string markup_text(std::string_view text);

}  // namespace weft
