#include "io/report/report_page.hpp"

#include <array>
#include <ostream>
#include <sstream>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "io/gzip_output.hpp"
#include "io/json/byte_source.hpp"
#include "io/json/json_reader.hpp"
#include "io/markup.hpp"
#include "io/report/base64.hpp"
#include "io/report/web_assets.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersionOfPages = 1;
constexpr std::size_t kMaxBytesOfTimeline = std::size_t{1} << 30;  // a small file can unpack to much more
constexpr std::string_view kDataBegin = "<script type=\"application/json\" id=\"weft-data\">";
constexpr std::string_view kTimelineBegin = "<script type=\"application/gzip\" class=\"weft-timeline\">";
constexpr std::string_view kScriptEnd = "</script>";

// JSON has < inside strings only, where it may be written as a number.
std::string without_markup(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::string bytes_of_hexadecimal(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

Json data_json(const ReportPage& page) {
  Json data{{"weft_report", kVersionOfPages}, {"title", page.title}, {"sources", Json::array()}};
  for (const ReportSource& source : page.sources) {
    Json timelines = Json::array();
    for (const PackedTimeline& timeline : source.timelines) {
      timelines.push_back({{"title", timeline.title}, {"policy", timeline.policy}});
    }
    data["sources"].push_back({{"name", source.name}, {"summary", source.summary}, {"timelines", timelines}});
  }
  return data;
}

void write_data(std::ostream& out, const ReportPage& page) {
  out << kDataBegin << without_markup(json_text(data_json(page))) << kScriptEnd << "\n";
  for (const ReportSource& source : page.sources) {
    for (const PackedTimeline& timeline : source.timelines) {
      out << kTimelineBegin << timeline.packed << kScriptEnd << "\n";
    }
  }
}

// Returns the text up to the end of the element that `begin` opens, from `at` on, and moves `at` behind it.
std::string_view next_element(std::string_view text, std::string_view begin, std::size_t& at,
                              const std::string& file_name) {
  const std::size_t open = text.find(begin, at);
  const std::size_t close = open == std::string_view::npos ? open : text.find(kScriptEnd, open);
  if (close == std::string_view::npos) fail("{}: is no page of weft report, or its end is missing", file_name);
  at = close + kScriptEnd.size();
  return text.substr(open + begin.size(), close - open - begin.size());
}

}  // namespace

PackedTimeline pack(const PageTimeline& timeline) {
  std::ostringstream compressed;
  write_gzip(compressed, [&](std::ostream& out) { write_page_timeline(out, timeline); });
  return {timeline.title, timeline.policy, base64(std::move(compressed).str())};
}

PageTimeline unpack(const PackedTimeline& packed) {
  const std::string compressed = bytes_of_base64(packed.packed), name = "timeline '" + packed.title + "'";
  ByteSource source = ByteSource::of_bytes(compressed, name);
  std::string text;
  std::array<char, 65536> piece;
  while (const std::size_t count = source.read(piece.data(), piece.size())) {
    if (text.size() + count > kMaxBytesOfTimeline) fail("{}: has more than {} bytes", name, kMaxBytesOfTimeline);
    text.append(piece.data(), count);
  }
  return read_page_timeline(text, name);
}

void write_report_page(std::ostream& out, const ReportPage& page) {
  std::string_view rest = kWebPage;
  const auto up_to = [&](std::string_view mark) {
    const std::size_t at = rest.find(mark);
    WEFT_CHECK(at != std::string_view::npos);
    out << rest.substr(0, at);
    rest.remove_prefix(at + mark.size());
  };
  up_to("{{script-hash}}");
  out << base64(bytes_of_hexadecimal(kWebScriptSha256));
  up_to("{{title}}");
  out << markup_text(page.title);
  up_to("{{style}}");
  out << kWebStyle;
  up_to("{{data}}");
  write_data(out, page);
  up_to("{{script}}");
  out << kWebScript << rest;
}

ReportPage read_report_page(const std::string& text, const std::string& file_name) {
  std::size_t at = 0;
  const std::string data_text(next_element(text, kDataBegin, at, file_name));
  const nlohmann::json data = parse_json(data_text, file_name);
  const JsonObject object(data, file_name);
  object.integer("weft_report", kVersionOfPages, kVersionOfPages);
  ReportPage page;
  page.title = object.string("title");
  for (const JsonObject& listed : object.objects("sources")) {
    ReportSource& source = page.sources.emplace_back();
    source.name = listed.string("name");
    for (const JsonObject& timeline : listed.objects("timelines")) {
      PackedTimeline& packed = source.timelines.emplace_back();
      packed.title = timeline.string("title");
      packed.policy = timeline.string("policy");
      packed.packed = next_element(text, kTimelineBegin, at, file_name);
      if (!is_base64(packed.packed)) fail("{}: timeline '{}' is not base64", file_name, packed.title);
    }
  }
  Json in_order = Json::parse(data_text);  // policies keep their order; the reader above has found it well-formed
  for (std::size_t i = 0; i < page.sources.size(); ++i) {
    page.sources[i].summary = std::move(in_order["sources"][i]["summary"]);
  }
  return page;
}

}  // namespace weft
