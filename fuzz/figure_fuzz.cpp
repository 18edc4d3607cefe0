// Any bytes as the timeline of a page, and as the summary of one: the views draw what the readers accept, or say that
// there is nothing to draw.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "io/figure/figure_views.hpp"

namespace {

void draw_all(const weft::FigureSubject& subject, bool of_timelines) {
  for (const weft::FigureView& view : weft::figure_views()) {
    if (view.of_timelines != of_timelines) continue;
    try {
      WEFT_CHECK(view.draw(subject).ends_with("</svg>\n"));
    } catch (const weft::Error&) {
      continue;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const auto summary = nlohmann::ordered_json::parse(text, nullptr, false);
  if (summary.is_discarded()) return 0;
  draw_all({"title", summary, "ddp", {}}, false);
  std::optional<weft::PageTimeline> page;
  try {
    page = weft::read_page_timeline(text, "timeline");
  } catch (const weft::Error&) {
    return 0;
  }
  draw_all({"title", {}, "ddp", {*page}}, true);
  return 0;
}
