// Reads what a report page is made of: folders of --out, pages, timelines, traces and what --json printed.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "io/report/report_page.hpp"

namespace weft {

// In the order of the paths; all traces together are one source, the last. Warnings about traces go to
// `err`. Throws Error where a path is nothing that can be shown.
std::vector<ReportSource> read_report_sources(const std::vector<std::string>& paths, std::ostream& err);

}  // namespace weft
