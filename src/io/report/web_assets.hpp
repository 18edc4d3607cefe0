// The files of web/ as they stand in the program (cmake/embed_web.cmake makes the source).
#pragma once

#include <string_view>

namespace weft {

extern const std::string_view kWebPage;          // page.html, with places for the other two and for the data
extern const std::string_view kWebStyle;         // report.css
extern const std::string_view kWebScript;        // all modules as one
extern const std::string_view kWebScriptSha256;  // in hexadecimal digits
extern const std::string_view kFigureFont;       // fonts/weft_sans.ttf

}  // namespace weft
