// The paper that figures are drawn on: SVG in one style, with its font inside, so that a figure looks the same wherever
// it is opened. Lengths are pixels of 1/96 inch; a sheet is as wide as a column of text and grows downwards.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/units.hpp"

namespace weft {

inline constexpr double kSheetWidth = 800;

// The colours of the page of reports in its light style (web/report.css).
namespace figure_colour {
inline constexpr std::string_view kInk = "#1d2329", kMuted = "#5b6670", kLine = "#dde2e6", kPaper = "#ffffff";
inline constexpr std::string_view kForward = "#86aed6", kInputGrad = "#2f5f92", kWeightGrad = "#5a9a93",
                                  kRecompute = "#b5a6d1", kOptimizer = "#8b7f70", kCompute = "#6f89a8";
inline constexpr std::string_view kSlowdown = "#c3d3e6", kHidden = "#b3bbc2", kExposed = "#d55e00", kBubble = "#d9dde1",
                                  kIdle = "#eef0f2";
inline constexpr std::string_view kExposedBy[] = {"#d55e00", "#f0a368", "#b34700", "#f5c7a1",
                                                  "#8a3a06", "#e88a45", "#fbe3d0"};  // by TrafficKind
inline constexpr std::string_view kSeries[] = {"#2f5f92", "#86aed6", "#8b7f70", "#5a9a93", "#b5a6d1",
                                               "#c9ced4", "#c566b0", "#3fb0bd", "#c9b82f", "#7b6bb0"};
}  // namespace figure_colour

enum class TextAnchor : std::uint8_t { start, middle, end };

struct TextLook {
  TextAnchor anchor = TextAnchor::start;
  std::string_view colour = figure_colour::kInk;
  double size = 11;
};

struct FigurePoint {
  double x = 0, y = 0;
};

struct FigureBox {
  double x = 0, y = 0, width = 0, height = 0;
};

struct LegendEntry {
  std::string colour, words;
};

// How wide the text is in the font of figures.
double text_width(std::string_view text, double size = TextLook{}.size);
// The text, or as much of it as fits with an ellipsis; "" where not even three letters fit.
std::string fitted_text(std::string_view text, double width, double size = TextLook{}.size);

class FigureSheet {
 public:
  // `note` stands below the title and may be empty.
  FigureSheet(std::string_view title, std::string_view note);

  // Where the next row begins; views move it downwards.
  double top() const { return top_; }
  void move_down(double by) { top_ += by; }

  void text(FigurePoint at, std::string_view words, TextLook look = {});
  // `tooltip` is shown by viewers when a pointer rests on the box.
  void box(FigureBox box, std::string_view colour, std::string_view tooltip = "");
  // All in one colour, as one element.
  void boxes(std::span<const FigureBox> boxes, std::string_view colour);
  void line(FigurePoint from, FigurePoint to, std::string_view colour, bool dashed = false);
  void curve(std::span<const FigurePoint> points, std::string_view colour);
  void area(std::span<const FigurePoint> points, std::string_view colour);
  void dot(FigurePoint at, double radius, std::string_view colour, std::string_view tooltip = "");
  // At the top, over as many lines as it takes; moves the top below it.
  void legend(double left, std::span<const LegendEntry> entries);
  // Ticks and times below the top, from 0 to `length` over `width`; moves the top below them.
  void time_axis(double left, double width, Nanos length);

  // The whole picture, down to the top.
  std::string svg() const;

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }
  void add_points(std::span<const FigurePoint> points);

  double top_ = 0;
  std::string body_;
};

// The smallest of 1, 2, 5, 10, 20, ... that cuts the length into at most `parts`.
double round_tick(double length, int parts);

// "<svg ...>" with the font of figures and these rules of style.
std::string svg_head(double width, double height, std::string_view style);

}  // namespace weft
