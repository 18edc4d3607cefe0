// `weft report --svg`, `--png` and `--pdf`: one view of what was read, as a figure.
#pragma once

#include <string>
#include <vector>

#include "app/flags.hpp"
#include "io/report/report_page.hpp"

namespace weft {

void declare_figure_flags(Flags& flags);
// The flags that name files.
std::vector<std::string> figure_file_flags();
// Whether a figure is asked for. Throws Error where flags of figures are given and no file is.
bool wants_figure(const Flags& flags);

// Writes the figure in every format that is asked for. Returns the files.
std::vector<std::string> write_figures(const Flags& flags, const ReportPage& page);

}  // namespace weft
