// The page that people send each other: one HTML file with everything in it (docs/report.md). A page is also a file
// format: `weft report` reads pages back and shows several as one.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/report/page_timeline.hpp"

namespace weft {

// A timeline as pages carry it: compressed JSON in base64.
struct PackedTimeline {
  std::string title, policy;
  std::string packed;
};

// What one command found out.
struct ReportSource {
  std::string name;                // a folder, a file, or the command
  nlohmann::ordered_json summary;  // what the command's --json prints; null of a timeline alone
  std::vector<PackedTimeline> timelines;
};

struct ReportPage {
  std::string title;
  std::vector<ReportSource> sources;
};

PackedTimeline pack(const PageTimeline& timeline);
// Throws Error where it holds anything else.
PageTimeline unpack(const PackedTimeline& packed);

// Whatever the names inside hold, they stay data: nothing of them can end the element that they stand in.
void write_report_page(std::ostream& out, const ReportPage& page);

// Throws Error where the text is no page of this version. The timelines stay packed.
ReportPage read_report_page(const std::string& text, const std::string& file_name);

}  // namespace weft
