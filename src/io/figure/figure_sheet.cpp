#include "io/figure/figure_sheet.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "io/markup.hpp"
#include "io/report/base64.hpp"
#include "io/report/web_assets.hpp"

namespace weft {
namespace {

constexpr double kMargin = 14, kTitleSize = 14, kLegendLine = 18;

// Widths of ASCII's printable characters in hundredths of the font's size, from the font's table hmtx.
constexpr std::array<std::uint8_t, 95> kAdvances = {
    32, 40, 46, 84, 64, 95, 78, 27, 39,  39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79,
    60, 79, 69, 63, 61, 73, 68, 99, 69,  61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63,
    63, 28, 28, 58, 28, 97, 63, 61, 63,  63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84};
constexpr double kOtherAdvance = 64;

// Of a character of several bytes the first one counts.
bool is_inside_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;
}

double advance_of(char c) {
  if (c >= ' ' && c <= '~') return kAdvances[static_cast<std::size_t>(c - ' ')];
  return is_inside_character(c) ? 0 : kOtherAdvance;
}

std::string_view name_of(TextAnchor anchor) {
  constexpr std::array<std::string_view, 3> kNames = {"start", "middle", "end"};
  return kNames[static_cast<std::size_t>(anchor)];
}

std::string tooltip_markup(std::string_view tooltip) {
  return tooltip.empty() ? "" : fmt::format("<title>{}</title>", markup_text(tooltip));
}

}  // namespace

double text_width(std::string_view text, double size) {
  double hundredths = 0;
  for (const char c : text) hundredths += advance_of(c);
  return hundredths / 100 * size;
}

std::string fitted_text(std::string_view text, double width, double size) {
  constexpr std::string_view kEllipsis = "...";
  const double most = width * 100 / size, ellipsis = text_width(kEllipsis, 100);
  double used = 0;
  std::size_t kept = 0;  // bytes before which an ellipsis fits, at the begin of a character
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_inside_character(text[i]) && used + ellipsis <= most) kept = i;
    used += advance_of(text[i]);
    if (used > most) return kept < 3 ? "" : std::string(text.substr(0, kept)) + std::string(kEllipsis);
  }
  return std::string(text);
}

double round_tick(double length, int parts) {
  double tick = 1;
  for (int i = 0; length / tick > parts; ++i) tick *= i % 3 == 1 ? 2.5 : 2;
  return tick;
}

std::string svg_head(double width, double height, std::string_view style) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\">\n"
      "<style>@font-face{{font-family:\"Weft Sans\";src:url(data:font/ttf;base64,{2})}}"
      "text{{font-family:\"Weft Sans\",\"DejaVu Sans\",sans-serif}}{3}</style>\n",
      width, height, base64(kFigureFont), style);
}

FigureSheet::FigureSheet(std::string_view title, std::string_view note) {
  const double width = kSheetWidth - 2 * kMargin;
  text({kMargin, 22}, fitted_text(title, width, kTitleSize), {.size = kTitleSize});
  top_ = 34;
  if (!note.empty()) {
    text({kMargin, top_ + 6}, fitted_text(note, width), {.colour = figure_colour::kMuted});
    top_ += 18;
  }
}

void FigureSheet::text(FigurePoint at, std::string_view words, TextLook look) {
  if (words.empty()) return;
  add("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", at.x, at.y,
      look.size, name_of(look.anchor), look.colour, markup_text(words));
}

void FigureSheet::box(FigureBox box, std::string_view colour, std::string_view tooltip) {
  add("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\">{}</rect>\n", box.x, box.y,
      std::max(box.width, 0.0), std::max(box.height, 0.0), colour, tooltip_markup(tooltip));
}

void FigureSheet::boxes(std::span<const FigureBox> boxes, std::string_view colour) {
  if (boxes.empty()) return;
  add("<path fill=\"{}\" d=\"", colour);
  for (const FigureBox& box : boxes) {
    add("M{:.2f} {:.2f}h{:.2f}v{:.2f}h{:.2f}z", box.x, box.y, box.width, box.height, -box.width);
  }
  add("\"/>\n");
}

void FigureSheet::line(FigurePoint from, FigurePoint to, std::string_view colour, bool dashed) {
  add("<path d=\"M{:.2f} {:.2f}L{:.2f} {:.2f}\" stroke=\"{}\" fill=\"none\"{}/>\n", from.x, from.y, to.x, to.y, colour,
      dashed ? " stroke-dasharray=\"4 3\"" : "");
}

void FigureSheet::add_points(std::span<const FigurePoint> points) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    add("{}{:.2f} {:.2f}", i == 0 ? "M" : "L", points[i].x, points[i].y);
  }
}

void FigureSheet::curve(std::span<const FigurePoint> points, std::string_view colour) {
  add("<path d=\"");
  add_points(points);
  add("\" stroke=\"{}\" stroke-width=\"1.5\" stroke-linejoin=\"round\" fill=\"none\"/>\n", colour);
}

void FigureSheet::area(std::span<const FigurePoint> points, std::string_view colour) {
  add("<path d=\"");
  add_points(points);
  add("z\" fill=\"{}\"/>\n", colour);
}

void FigureSheet::dot(FigurePoint at, double radius, std::string_view colour, std::string_view tooltip) {
  add("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{}\" fill=\"{}\">{}</circle>\n", at.x, at.y, radius, colour,
      tooltip_markup(tooltip));
}

void FigureSheet::legend(double left, std::span<const LegendEntry> entries) {
  double x = left;
  for (const LegendEntry& entry : entries) {
    const double width = 32 + text_width(entry.words);
    if (x > left && x + width > kSheetWidth) {
      x = left;
      top_ += kLegendLine;
    }
    box({x, top_, 10, 10}, entry.colour);
    text({x + 15, top_ + 9}, entry.words, {.colour = figure_colour::kMuted});
    x += width;
  }
  if (!entries.empty()) top_ += kLegendLine;
}

void FigureSheet::time_axis(double left, double width, Nanos length) {
  const auto nanos = static_cast<double>(std::max<std::int64_t>(length.value, 1));
  const bool in_seconds = nanos >= 2e9, in_millis = nanos >= 2e6;
  const double unit = in_seconds ? 1e9 : in_millis ? 1e6 : 1e3, tick = round_tick(nanos, 8);
  line({left, top_}, {left + width, top_}, figure_colour::kMuted);
  for (double at = 0; at <= nanos; at += tick) {
    const double x = left + at / nanos * width;
    line({x, top_}, {x, top_ + 4}, figure_colour::kMuted);
    text({x, top_ + 16},
         fmt::format("{:g} {}", at / unit,
                     in_seconds  ? "s"
                     : in_millis ? "ms"
                                 : "us"),
         {.anchor = TextAnchor::middle, .colour = figure_colour::kMuted});
  }
  top_ += 28;
}

std::string FigureSheet::svg() const {
  const double height = top_ + kMargin / 2;
  return svg_head(kSheetWidth, height, "") +
         fmt::format("<rect width=\"{:.0f}\" height=\"{:.0f}\" fill=\"{}\"/>\n", kSheetWidth, height,
                     figure_colour::kPaper) +
         body_ + "</svg>\n";
}

}  // namespace weft
