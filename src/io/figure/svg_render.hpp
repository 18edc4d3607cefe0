// SVG as PNG and PDF, by librsvg and cairo. They are loaded when they are first needed, so that Weft runs without them.
#pragma once

#include <ostream>
#include <string>

namespace weft {

// Why figures cannot be rendered here; "" where they can.
std::string rendering_problem();

// On white paper, `scale` pixels for each of the picture's. Throws Error where a library is missing or fails.
void write_png(std::ostream& out, const std::string& svg, double scale);
// One page as large as the picture, text as text, with the glyphs that it uses.
void write_pdf(std::ostream& out, const std::string& svg);

}  // namespace weft
