// Losses over the steps of a run, a curve for each policy and one for the losses that it is compared with; below them,
// where gradients are compressed, how much of them each step holds back.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "io/figure/figure_sheet.hpp"
#include "io/figure/figure_views.hpp"
#include "io/figure/summary_numbers.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLossHeight = 260, kHeldBackHeight = 140, kLossLeft = 70, kLossWidth = kSheetWidth - kLossLeft - 24;

struct StepCurve {
  std::string name, colour;
  std::vector<double> values;  // by step, from 1
};

// The numbers of an array; it ends before what is none.
std::vector<double> numbers_under(const Json& object, const std::string& key) {
  constexpr double kMost = 1e9;
  std::vector<double> numbers;
  for (const Json& each : member_of(object, key)) {
    if (!each.is_number() || !std::isfinite(each.get<double>()) || std::abs(each.get<double>()) > kMost) break;
    numbers.push_back(each.get<double>());
  }
  return numbers;
}

// There are more formats of compression than colours of series.
std::string colour_of_curve(std::size_t number) {
  static constexpr std::array<std::string_view, 4> kMore = {"#a23b3b", "#4f7f3a", "#e0739c", "#6b4a2b"};
  const std::size_t place = number % (std::size(figure_colour::kSeries) + kMore.size());
  const bool of_series = place < std::size(figure_colour::kSeries);
  return std::string(of_series ? figure_colour::kSeries[place] : kMore[place - std::size(figure_colour::kSeries)]);
}

std::vector<StepCurve> curves_under(const Json& summary, const std::string& key) {
  std::vector<StepCurve> curves;
  const Json& policies = member_of(summary, "policies");
  if (!policies.is_object()) return curves;
  std::size_t number = 0;
  for (const auto& [name, policy] : policies.items()) {
    StepCurve curve{name, colour_of_curve(number++), numbers_under(policy, key)};
    if (!curve.values.empty()) curves.push_back(std::move(curve));
  }
  return curves;
}

struct StepScale {
  double steps = 2, least = 0, most = 1, top = 0, height = kLossHeight;

  FigurePoint place(double step, double value) const {
    return {kLossLeft + (step - 1) / (steps - 1) * kLossWidth, top + height * (1 - (value - least) / (most - least))};
  }
};

StepScale scale_over(const std::vector<StepCurve>& curves, double height) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  StepScale scale{.least = kFar, .most = -kFar, .height = height};
  for (const StepCurve& curve : curves) {
    scale.steps = std::max(scale.steps, static_cast<double>(curve.values.size()));
    const auto [low, high] = std::ranges::minmax(curve.values);
    scale.least = std::min(scale.least, low);
    scale.most = std::max(scale.most, high);
  }
  scale.most += 0.05 * (scale.most - scale.least);
  if (!(scale.most > scale.least)) scale.most = scale.least + 1;
  return scale;
}

// What a value is called on the axis.
using ValueWords = std::string (*)(double);

void draw_step_axes(FigureSheet& sheet, const StepScale& scale, ValueWords words) {
  const double tick = round_tick((scale.most - scale.least) * 1e3, 5) / 1e3;  // ticks are whole thousandths
  for (double value = std::ceil(scale.least / tick) * tick; value <= scale.most; value += tick) {
    const double y = scale.place(1, value).y;
    sheet.line({kLossLeft, y}, {kLossLeft + kLossWidth, y}, figure_colour::kLine);
    sheet.text({kLossLeft - 8, y + 4}, words(value), {TextAnchor::end, figure_colour::kMuted, 10});
  }
  const double between = std::max(1.0, round_tick(scale.steps, 8));
  for (double step = between; step <= scale.steps; step += between) {
    sheet.text({scale.place(step, scale.least).x, scale.top + scale.height + 16}, fmt::format("{:g}", step),
               {TextAnchor::middle, figure_colour::kMuted, 10});
  }
}

void draw_steps(FigureSheet& sheet, const std::string& what, const std::vector<StepCurve>& curves, double height,
                ValueWords words) {
  sheet.text({kLossLeft, sheet.top() + 12}, what);
  sheet.move_down(20);
  StepScale scale = scale_over(curves, height);
  scale.top = sheet.top();
  draw_step_axes(sheet, scale, words);
  for (const StepCurve& curve : curves) {
    std::vector<FigurePoint> places;
    for (std::size_t i = 0; i < curve.values.size(); ++i) {
      places.push_back(scale.place(static_cast<double>(i + 1), curve.values[i]));
    }
    if (places.size() == 1) {
      sheet.dot(places.front(), 2.5, curve.colour);
    } else {
      sheet.curve(places, curve.colour);
    }
  }
  sheet.move_down(height + 30);
}

}  // namespace

std::string draw_losses(const FigureSubject& subject) {
  std::vector<StepCurve> losses = curves_under(subject.summary, "losses");
  if (losses.empty()) {
    fail("{}: there are no losses to draw; weft run --json prints them, and its --out DIR keeps them", subject.title);
  }
  const Json& earlier = member_of(subject.summary, "earlier_losses");
  if (std::vector<double> values = numbers_under(earlier, "losses"); !values.empty()) {
    losses.push_back({string_in(earlier, "file"), std::string(figure_colour::kInk), std::move(values)});
  }
  FigureSheet sheet(subject.title, "Losses over the steps of training");
  draw_steps(sheet, "loss", losses, kLossHeight, [](double value) { return fmt::format("{:.6g}", value); });
  // Formats lie orders of magnitude apart, so their logarithms are drawn.
  std::vector<StepCurve> held_back = curves_under(subject.summary, "compression_errors");
  for (StepCurve& curve : held_back) {
    constexpr double kLeast = 1e-6;
    for (double& value : curve.values) value = std::log10(std::max(value, kLeast));
  }
  if (!held_back.empty()) {
    draw_steps(sheet, "held back: the norm of what compression keeps for later steps over that of the gradients",
               held_back, kHeldBackHeight, [](double value) { return fmt::format("{:.2g}", std::pow(10, value)); });
  }
  std::vector<LegendEntry> legend;
  for (const StepCurve& curve : losses) legend.push_back({curve.colour, curve.name});
  sheet.legend(kLossLeft, legend);
  sheet.move_down(8);
  return sheet.svg();
}

}  // namespace weft
