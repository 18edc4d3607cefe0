// A sweep as a heat map over the two keys that matter most, and as a front: the steps that nothing beats in both time
// and memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "io/figure/figure_sheet.hpp"
#include "io/figure/figure_views.hpp"
#include "io/figure/summary_numbers.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

struct SweepPoint {
  std::map<std::string, std::string> keys;
  std::optional<double> step_s, bytes;  // none: infeasible
};

std::string words_of_value(const Json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

std::string words_of(const SweepPoint& point) {
  std::string words;
  for (const auto& [key, value] : point.keys) words += fmt::format("{}{} {}", words.empty() ? "" : ", ", key, value);
  return words;
}

std::vector<SweepPoint> points_of(const FigureSubject& subject) {
  std::vector<SweepPoint> points;
  const Json& sweep = member_of(subject.summary, "sweep");
  for (const char* list : {"rows", "infeasible"}) {
    for (const Json& row : member_of(sweep, list)) {
      SweepPoint& point = points.emplace_back();
      for (const auto& [key, value] : member_of(row, "keys").items()) point.keys[key] = words_of_value(value);
      point.step_s = number_in(row, "step_s");
      point.bytes = number_in(row, "memory_peak_bytes");
    }
  }
  if (points.empty()) fail("{}: there is no sweep to draw", subject.title);
  return points;
}

// How much slower the worst choice of the key makes the best step than its best choice; 0 where there is no choice.
double effect_of(const std::vector<SweepPoint>& points, const std::string& key) {
  std::map<std::string, double> best;
  for (const SweepPoint& point : points) {
    if (!point.step_s || !point.keys.contains(key)) continue;
    const auto [found, added] = best.try_emplace(point.keys.at(key), *point.step_s);
    found->second = std::min(found->second, *point.step_s);
  }
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const auto& [value, step] : best) {
    least = std::min(least, step);
    most = std::max(most, step);
  }
  return best.size() > 1 && least > 0 ? most / least : 0;
}

// Values of a key, numbers by size.
std::vector<std::string> values_of(const std::vector<SweepPoint>& points, const std::string& key) {
  std::vector<std::string> values;
  for (const SweepPoint& point : points) {
    const auto found = point.keys.find(key);
    if (found != point.keys.end() && std::ranges::find(values, found->second) == values.end()) {
      values.push_back(found->second);
    }
  }
  std::ranges::sort(values, {}, [](const std::string& value) {
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    return std::pair(*end == '\0' && std::isfinite(number) ? number : std::numeric_limits<double>::infinity(), value);
  });
  return values;
}

// The keys that have several values, those first whose choice changes the best step most.
std::vector<std::string> keys_by_effect(const std::vector<SweepPoint>& points) {
  std::vector<std::string> keys;
  for (const SweepPoint& point : points) {
    for (const auto& [key, value] : point.keys) {
      if (std::ranges::find(keys, key) == keys.end() && values_of(points, key).size() > 1) keys.push_back(key);
    }
  }
  std::ranges::stable_sort(keys, std::ranges::greater{},
                           [&](const std::string& key) { return effect_of(points, key); });
  return keys;
}

// Between the lightest and the darkest colour of the page's heat map.
std::string heat_colour(double share) {
  const auto mix = [&](double light, double dark) {
    return static_cast<int>(std::lround(light + share * (dark - light)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(0xee, 0x2f), mix(0xf3, 0x5f), mix(0xf8, 0x92));
}

struct HeatMap {
  std::string down, across;
  std::vector<std::string> lines, columns;
  std::map<std::pair<std::string, std::string>, SweepPoint> best;  // by line and column
  double fastest = std::numeric_limits<double>::infinity(), slowest = 0;
};

HeatMap heat_map_of(const std::vector<SweepPoint>& points, const std::vector<std::string>& keys) {
  HeatMap map{keys[0], keys.size() > 1 ? keys[1] : "", values_of(points, keys[0]), {""}, {}};
  if (keys.size() > 1) map.columns = values_of(points, keys[1]);
  for (const SweepPoint& point : points) {
    if (!point.step_s || !point.keys.contains(map.down)) continue;
    const std::string column = keys.size() > 1 && point.keys.contains(map.across) ? point.keys.at(map.across) : "";
    const auto [found, added] = map.best.try_emplace({point.keys.at(map.down), column}, point);
    if (*point.step_s < *found->second.step_s) found->second = point;
  }
  for (const auto& [place, point] : map.best) {
    map.fastest = std::min(map.fastest, *point.step_s);
    map.slowest = std::max(map.slowest, *point.step_s);
  }
  return map;
}

void draw_heat_line(FigureSheet& sheet, const HeatMap& map, const std::string& line, FigureBox cell) {
  sheet.text({cell.x - 10, cell.y + cell.height / 2 + 4}, fitted_text(line, cell.x - 20), {.anchor = TextAnchor::end});
  for (const std::string& column : map.columns) {
    const auto found = map.best.find({line, column});
    const FigurePoint middle{cell.x + cell.width / 2, cell.y + cell.height / 2 + 4};
    if (found == map.best.end()) {
      sheet.text(middle, "-", {.anchor = TextAnchor::middle, .colour = figure_colour::kMuted});
    } else {
      const double step = *found->second.step_s;
      const double share = map.slowest > map.fastest ? (map.slowest - step) / (map.slowest - map.fastest) : 1;
      sheet.box({cell.x + 1, cell.y + 1, cell.width - 2, cell.height - 2}, heat_colour(share), words_of(found->second));
      sheet.text(middle, fitted_text(seconds_words(step), cell.width - 4),
                 {TextAnchor::middle, share > 0.55 ? figure_colour::kPaper : figure_colour::kInk, 11});
    }
    cell.x += cell.width;
  }
}

struct FrontScale {
  double left = 80, width = kSheetWidth - 110, top = 0, height = 300;
  double most_bytes = 1, least_step = 0, most_step = 1;

  FigurePoint place(const SweepPoint& point) const {
    return {left + *point.bytes / most_bytes * width,
            top + (most_step - *point.step_s) / (most_step - least_step) * height};
  }
};

void draw_front_axes(FigureSheet& sheet, const FrontScale& scale) {
  const TextLook muted{.anchor = TextAnchor::middle, .colour = figure_colour::kMuted};
  const double bottom = scale.top + scale.height;
  sheet.line({scale.left, scale.top}, {scale.left, bottom}, figure_colour::kMuted);
  sheet.line({scale.left, bottom}, {scale.left + scale.width, bottom}, figure_colour::kMuted);
  for (int i = 1; i <= 4; ++i) {
    const double share = 0.25 * i / 1.05;
    sheet.text({scale.left + share * scale.width, bottom + 16}, bytes_words(share * scale.most_bytes), muted);
  }
  for (int i = 0; i <= 2; ++i) {
    const double step = scale.least_step + 0.5 * i * (scale.most_step - scale.least_step);
    sheet.text({scale.left - 8, bottom - 0.5 * i * scale.height + 4}, seconds_words(step),
               {.anchor = TextAnchor::end, .colour = figure_colour::kMuted});
  }
  sheet.text({scale.left + scale.width / 2, bottom + 34}, "memory of the fullest device", muted);
}

}  // namespace

std::string draw_sweep(const FigureSubject& subject) {
  const std::vector<SweepPoint> points = points_of(subject);
  const std::vector<std::string> keys = keys_by_effect(points);
  if (keys.empty()) fail("{}: the sweep has no key with several values", subject.title);
  const HeatMap map = heat_map_of(points, keys);
  FigureSheet sheet(subject.title, fmt::format("The fastest step for each {}{}; a dash: none is feasible",
                                               map.down + (map.across.empty() ? "" : " (down) and " + map.across),
                                               map.across.empty() ? "" : " (across)"));
  constexpr double kLeft = 120, kHeight = 26;
  const double width = std::min(90.0, (kSheetWidth - kLeft - 14) / static_cast<double>(map.columns.size()));
  double x = kLeft;
  for (const std::string& column : map.columns) {
    sheet.text({x + width / 2, sheet.top() + 14}, fitted_text(column, width), {.anchor = TextAnchor::middle});
    x += width;
  }
  sheet.move_down(20);
  for (const std::string& line : map.lines) {
    draw_heat_line(sheet, map, line, {kLeft, sheet.top(), width, kHeight});
    sheet.move_down(kHeight);
  }
  sheet.move_down(8);
  return sheet.svg();
}

std::string draw_front(const FigureSubject& subject) {
  std::vector<SweepPoint> points = points_of(subject);
  std::erase_if(points, [](const SweepPoint& p) { return !p.step_s || !p.bytes || *p.bytes <= 0 || *p.step_s <= 0; });
  if (points.size() < 2) fail("{}: a front needs two feasible combinations", subject.title);
  std::ranges::sort(points, {}, [](const SweepPoint& point) { return std::pair(*point.bytes, *point.step_s); });
  FigureSheet sheet(subject.title, "Step against memory; the line joins what nothing beats in both");
  FrontScale scale{.top = sheet.top() + 8};
  scale.most_bytes = 1.05 * *points.back().bytes;
  const auto [least, most] = std::ranges::minmax(points, {}, [](const SweepPoint& point) { return *point.step_s; });
  scale.least_step = 0.98 * *least.step_s;
  scale.most_step = 1.02 * *most.step_s;
  draw_front_axes(sheet, scale);
  std::vector<FigurePoint> front;
  double fastest = std::numeric_limits<double>::infinity();
  for (const SweepPoint& point : points) {
    const bool is_front = *point.step_s < fastest;
    fastest = std::min(fastest, *point.step_s);
    if (is_front) front.push_back(scale.place(point));
    sheet.dot(scale.place(point), is_front ? 4.5 : 3.5, is_front ? figure_colour::kInputGrad : figure_colour::kHidden,
              words_of(point));
  }
  sheet.curve(front, figure_colour::kInputGrad);
  sheet.move_down(scale.height + 52);
  return sheet.svg();
}

}  // namespace weft
