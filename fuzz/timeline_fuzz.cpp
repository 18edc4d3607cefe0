// Bytes as a timeline file: the reader answers with a timeline or an Error, never anything else; what it accepts is
// written so that it reads back the same, and accounting, critical path, comparison and trace have an answer for it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "io/report/page_timeline.hpp"
#include "io/timeline_json.hpp"
#include "io/trace/chrome_trace.hpp"
#include "timeline/compare.hpp"
#include "timeline/critical_path.hpp"

namespace {

std::string text_of(const weft::TimelineFile& file) {
  std::ostringstream out;
  weft::write_timeline_json(out, file);
  return out.str();
}

// Cycles, spans twice, no steady state: what only they look at is still refused.
void look_at(const weft::Timeline& timeline) {
  try {
    const weft::Accounting accounting = weft::account(timeline);
    std::ostringstream trace;
    weft::write_chrome_trace(trace, timeline, accounting);
    std::ostringstream page;
    weft::write_page_timeline(page, weft::page_timeline(timeline, accounting));
    weft::compare_timelines(timeline, timeline);
    if (!timeline.dependency_begin.empty()) weft::critical_path(timeline);
  } catch (const weft::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::optional<weft::TimelineFile> file;
  try {
    file = weft::read_timeline_json(text, "fuzz.json");
  } catch (const weft::Error&) {
    return 0;
  }
  const std::string written = text_of(*file);
  if (text_of(weft::read_timeline_json(written, "written")) != written) std::abort();
  look_at(file->timeline);
  return 0;
}
