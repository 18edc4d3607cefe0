// Curves over time: the memory of ranks, and what the transfers of their groups carry. And exposed time as a flame.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/text.hpp"
#include "io/figure/exposure_tree.hpp"
#include "io/figure/figure_sheet.hpp"
#include "io/figure/figure_views.hpp"
#include "io/figure/group_traffic.hpp"
#include "io/figure/summary_numbers.hpp"
#include "io/figure/timeline_frame.hpp"

namespace weft {
namespace {

constexpr double kPanelHeight = 110, kFlameRow = 24;
constexpr std::size_t kMostCurves = 4;  // more hide each other
constexpr std::size_t kTrafficBins = 300;

std::string_view series_colour(std::size_t i) {
  return figure_colour::kSeries[i % std::size(figure_colour::kSeries)];
}

// Lines and words at nothing, half and all of what a panel shows.
void draw_panel(FigureSheet& sheet, const TimeFrame& frame, const std::array<std::string, 3>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const double y = sheet.top() + kPanelHeight * (1 - 0.5 * static_cast<double>(i));
    sheet.line({frame.left, y}, {frame.left + frame.width, y}, figure_colour::kLine);
    sheet.text({frame.left - 8, y + 4}, words[i], {.anchor = TextAnchor::end, .colour = figure_colour::kMuted});
  }
}

std::vector<FigurePoint> memory_curve(const std::vector<MemorySample>& samples, const TimeFrame& frame, double bottom,
                                      double scale) {
  std::vector<FigurePoint> points;
  for (const MemorySample& sample : samples) {
    const double x = frame.x_of(sample.at), y = bottom - static_cast<double>(sample.bytes.value) * scale;
    if (!points.empty()) points.push_back({x, points.back().y});
    points.push_back({x, y});
    if (sample.at >= frame.end) break;
  }
  return points;
}

void draw_memory_panel(FigureSheet& sheet, const PageTimeline& page) {
  const std::vector<std::vector<MemorySample>>& memory = page.timeline.memory;
  const std::size_t count = std::min({memory.size(), page.timeline.ranks.size(), kMostCurves});
  double most = 1;
  for (std::size_t i = 0; i < count; ++i) {
    for (const MemorySample& sample : memory[i]) most = std::max(most, static_cast<double>(sample.bytes.value));
  }
  const TimeFrame frame = first_period(page);
  frame.draw_heading(sheet, page, fmt::format("most: {}", bytes_words(most)));
  draw_panel(sheet, frame, {"0", bytes_words(most / 2), bytes_words(most)});
  std::vector<LegendEntry> legend;
  for (std::size_t i = 0; i < count; ++i) {
    sheet.curve(memory_curve(memory[i], frame, sheet.top() + kPanelHeight, kPanelHeight / most), series_colour(i));
    legend.push_back({std::string(series_colour(i)), page.timeline.ranks[i].name});
  }
  sheet.move_down(kPanelHeight);
  sheet.time_axis(frame.left, frame.width, frame.end - frame.begin);
  sheet.legend(frame.left, legend);
}

std::string rate_words(double bytes_per_second) {
  return fmt::format("{:.3g} GB/s", bytes_per_second / 1e9);
}

void draw_traffic_panel(FigureSheet& sheet, const TimeFrame& frame, const GroupTraffic& traffic) {
  double most = 1, sum = 0;
  for (const double rate : traffic.bytes_per_second) {
    most = std::max(most, rate);
    sum += rate;
  }
  const double mean = sum / static_cast<double>(traffic.bytes_per_second.size());
  sheet.text({frame.left, sheet.top() + 10}, fmt::format("{}: {} on average", traffic.group, rate_words(mean)));
  sheet.move_down(16);
  draw_panel(sheet, frame, {"0", rate_words(most / 2), rate_words(most)});
  const double bottom = sheet.top() + kPanelHeight, width = frame.width / static_cast<double>(kTrafficBins);
  std::vector<FigurePoint> points = {{frame.left, bottom}};
  for (std::size_t i = 0; i < traffic.bytes_per_second.size(); ++i) {
    const double x = frame.left + static_cast<double>(i) * width,
                 y = bottom - traffic.bytes_per_second[i] / most * kPanelHeight;
    points.push_back({x, y});
    points.push_back({x + width, y});
  }
  points.push_back({frame.left + frame.width, bottom});
  sheet.area(points, figure_colour::kHidden);
  sheet.move_down(kPanelHeight + 14);
}

std::string flame_words(const ExposureNode& node, double whole) {
  return fmt::format("{} {} ({:.1f} %)", node.name, seconds_words(node.seconds), 100 * node.seconds / whole);
}

// A node lies above its children, and is as wide as they are together.
void draw_flame(FigureSheet& sheet, const ExposureNode& node, FigureBox place, double whole, std::size_t depth) {
  constexpr std::array<std::string_view, 4> kColours = {"#d55e00", "#e88a45", "#f5c7a1", "#fbe3d0"};
  if (place.width < 0.3) return;
  const std::string words = flame_words(node, whole);
  sheet.box({place.x, place.y, std::max(0.3, place.width - 0.7), kFlameRow - 1.5},
            kColours[std::min(depth, kColours.size() - 1)], words);
  sheet.text({place.x + 5, place.y + kFlameRow / 2 + 3}, fitted_text(words, place.width - 10, 10),
             {.colour = depth == 0 ? figure_colour::kPaper : figure_colour::kInk, .size = 10});
  double x = place.x;
  for (const ExposureNode& child : node.children) {
    const double width = place.width * child.seconds / node.seconds;
    draw_flame(sheet, child, {x, place.y + kFlameRow, width, place.height}, whole, depth + 1);
    x += width;
  }
}

}  // namespace

std::string draw_memory_over_time(const FigureSubject& subject) {
  FigureSheet sheet(subject.title, "Memory over time: bytes that hold something, by stage");
  for (const PageTimeline& page : subject.timelines) {
    if (page.timeline.memory.empty()) fail("{}: {} does not say how memory is used", subject.title, page.title);
    draw_memory_panel(sheet, page);
  }
  return sheet.svg();
}

std::string draw_links(const FigureSubject& subject) {
  FigureSheet sheet(subject.title, "What a mean rank sends over time, by the group of the transfers");
  for (const PageTimeline& page : subject.timelines) {
    const TimeFrame frame = first_period(page);
    const std::vector<GroupTraffic> groups = traffic_of_groups(page.timeline, frame.begin, frame.end, kTrafficBins);
    if (groups.empty()) fail("{}: {} has no transfers whose bytes are known", subject.title, page.title);
    frame.draw_heading(sheet, page, "");
    for (const GroupTraffic& group : groups) draw_traffic_panel(sheet, frame, group);
    sheet.time_axis(frame.left, frame.width, frame.end - frame.begin);
  }
  return sheet.svg();
}

std::string draw_exposure(const FigureSubject& subject) {
  FigureSheet sheet(subject.title,
                    "Exposed time of a mean rank by kind, by the transfer that was waited for, by stage");
  for (const PageTimeline& page : subject.timelines) {
    const ExposureNode root = exposure_tree(page);
    sheet.text({14, sheet.top() + 14}, page.title);
    sheet.move_down(22);
    if (root.seconds > 0) {
      draw_flame(sheet, root, {14, sheet.top(), kSheetWidth - 28, kFlameRow}, root.seconds, 0);
      sheet.move_down(4 * kFlameRow + 10);
    } else {
      sheet.text({14, sheet.top() + 14}, "Nothing is exposed.", {.colour = figure_colour::kMuted});
      sheet.move_down(28);
    }
  }
  return sheet.svg();
}

}  // namespace weft
