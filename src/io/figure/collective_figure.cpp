// A collective bench as bandwidth over size: a panel for each collective, a curve for each algorithm, the library's own
// calls among them, and what the link carries as a line.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "io/figure/figure_sheet.hpp"
#include "io/figure/figure_views.hpp"
#include "io/figure/summary_numbers.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kBandwidthHeight = 180, kBandwidthLeft = 90, kBandwidthWidth = kSheetWidth - kBandwidthLeft - 24;

struct MeasuredBandwidth {
  double size = 0, bytes_per_second = 0;
};
using BandwidthCurves = std::map<std::string, std::vector<MeasuredBandwidth>>;  // by algorithm

std::map<std::string, BandwidthCurves> curves_by_collective(const Json& summary) {
  std::map<std::string, BandwidthCurves> curves;
  for (const Json& row : member_of(summary, "rows")) {
    const double size = length_in(row, "size_bytes"), rate = length_in(row, "bus_bandwidth");
    if (size > 0 && rate > 0) curves[string_in(row, "collective")][string_in(row, "algorithm")].push_back({size, rate});
  }
  for (auto& [collective, by_algorithm] : curves) {
    for (auto& [algorithm, points] : by_algorithm) std::ranges::sort(points, {}, &MeasuredBandwidth::size);
  }
  return curves;
}

struct BandwidthScale {
  double least_size = 1, most_size = 2, most_rate = 0, top = 0;

  FigurePoint place(MeasuredBandwidth point) const {
    const double share = std::log(point.size / least_size) / std::log(most_size / least_size);
    return {kBandwidthLeft + share * kBandwidthWidth,
            top + kBandwidthHeight * (1 - point.bytes_per_second / most_rate)};
  }
};

BandwidthScale scale_of(const BandwidthCurves& curves, double link) {
  BandwidthScale scale{.least_size = std::numeric_limits<double>::infinity(), .most_size = 0, .most_rate = link};
  for (const auto& [algorithm, points] : curves) {
    for (const MeasuredBandwidth& point : points) {
      scale.least_size = std::min(scale.least_size, point.size);
      scale.most_size = std::max(scale.most_size, point.size);
      scale.most_rate = std::max(scale.most_rate, point.bytes_per_second);
    }
  }
  if (scale.most_size <= scale.least_size) scale.most_size = 2 * scale.least_size;
  scale.most_rate *= 1.05;
  return scale;
}

void draw_bandwidth_axes(FigureSheet& sheet, const BandwidthScale& scale, const BandwidthCurves& curves) {
  const double bottom = scale.top + kBandwidthHeight, tick = round_tick(scale.most_rate / 1e3, 5) * 1e3;
  for (double rate = 0; rate <= scale.most_rate; rate += tick) {
    const double y = scale.place({scale.least_size, rate}).y;
    sheet.line({kBandwidthLeft, y}, {kBandwidthLeft + kBandwidthWidth, y}, figure_colour::kLine);
    sheet.text({kBandwidthLeft - 8, y + 4}, fmt::format("{:g} GB/s", rate / 1e9),
               {TextAnchor::end, figure_colour::kMuted, 10});
  }
  std::map<double, bool> sizes;
  for (const auto& [algorithm, points] : curves) {
    for (const MeasuredBandwidth& point : points) sizes[point.size] = true;
  }
  double free_from = 0;
  for (const auto& [size, known] : sizes) {
    const double half = text_width(bytes_words(size), 10) / 2;
    const double x = std::min(scale.place({size, 0}).x, kBandwidthLeft + kBandwidthWidth - half);
    if (x - half < free_from) continue;
    sheet.text({x, bottom + 16}, bytes_words(size), {TextAnchor::middle, figure_colour::kMuted, 10});
    free_from = x + half + 8;
  }
}

void draw_bandwidths(FigureSheet& sheet, const std::string& collective, const BandwidthCurves& curves, double link) {
  sheet.text({kBandwidthLeft, sheet.top() + 12}, collective);
  sheet.move_down(20);
  BandwidthScale scale = scale_of(curves, link);
  scale.top = sheet.top();
  draw_bandwidth_axes(sheet, scale, curves);
  std::vector<LegendEntry> legend;
  for (const auto& [algorithm, points] : curves) {
    const bool is_peer = algorithm == "native";
    const std::string colour(is_peer ? figure_colour::kInk
                                     : figure_colour::kSeries[legend.size() % std::size(figure_colour::kSeries)]);
    std::vector<FigurePoint> places;
    for (const MeasuredBandwidth& point : points) {
      places.push_back(scale.place(point));
      sheet.dot(places.back(), 2.5, colour,
                fmt::format("{}, {}: {:.3g} GB/s", algorithm, bytes_words(point.size), point.bytes_per_second / 1e9));
    }
    sheet.curve(places, colour);
    legend.push_back({colour, is_peer ? "the library's own" : algorithm});
  }
  if (link > 0) {
    const double y = scale.place({scale.least_size, link}).y;
    sheet.line({kBandwidthLeft, y}, {kBandwidthLeft + kBandwidthWidth, y}, figure_colour::kMuted, true);
    legend.push_back({std::string(figure_colour::kMuted), "the link (dashed)"});
  }
  sheet.move_down(kBandwidthHeight + 26);
  sheet.legend(kBandwidthLeft, legend);
  sheet.move_down(8);
}

}  // namespace

std::string draw_collectives(const FigureSubject& subject) {
  const std::map<std::string, BandwidthCurves> curves = curves_by_collective(subject.summary);
  if (curves.empty()) {
    fail("{}: there is no collective bench to draw; weft collective bench --out DIR writes one", subject.title);
  }
  FigureSheet sheet(subject.title, "Bus bandwidth over the size of the buffer");
  for (const auto& [collective, of_collective] : curves) {
    draw_bandwidths(sheet, collective, of_collective, length_in(subject.summary, "link_bytes_per_s"));
  }
  return sheet.svg();
}

}  // namespace weft
