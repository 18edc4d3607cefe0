#include "io/step_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "io/figure/figure_sheet.hpp"
#include "io/markup.hpp"
#include "io/step_bars.hpp"
#include "io/xml_text.hpp"

namespace weft {
namespace {

// Pixels.
constexpr double kWidth = 800, kLeft = 66, kRight = 14, kPlot = kWidth - kLeft - kRight;
constexpr double kTitleHeight = 26, kPanelHead = 24, kPanelGap = 14, kRankGap = 7, kLegendLine = 18;
constexpr double kComputeHeight = 15, kTransferHeight = 7, kLaneGap = 1;
constexpr double kMinBarWidth = 2;  // what is shorter is drawn in stacks
constexpr std::size_t kMaxRanks = 8;

struct Colour {
  std::string_view css, fill, name;
};
// As on the page of reports, only exposed time is orange.
constexpr std::array<Colour, kComputeColours> kCompute{{{"f", figure_colour::kForward, "forward"},
                                                        {"b", figure_colour::kInputGrad, "backward"},
                                                        {"o", figure_colour::kOptimizer, "optimizer"},
                                                        {"w", figure_colour::kExposed, "waiting for communication"},
                                                        {"c", figure_colour::kCompute, "other compute"}}};
constexpr std::array<Colour, kTrafficKinds> kTraffic{{{"dp", "#7b6bb0", "DP gradients"},
                                                      {"pg", "#c9b82f", "parameter gathers"},
                                                      {"tp", "#45a874", "TP"},
                                                      {"pp", "#9097a3", "PP messages"},
                                                      {"cp", "#3fb0bd", "CP"},
                                                      {"ep", "#c566b0", "EP all-to-alls"},
                                                      {"ot", "#7a6f64", "other communication"}}};

// Indices of the ranks that are shown, spread evenly.
std::vector<std::size_t> shown_ranks(std::size_t ranks) {
  std::vector<std::size_t> shown;
  const std::size_t count = std::min(ranks, kMaxRanks);
  for (std::size_t i = 0; i < count; ++i) shown.push_back(count < 2 ? 0 : i * (ranks - 1) / (count - 1));
  return shown;
}

class StepPainter {
 public:
  explicit StepPainter(std::span<const StepPanel> panels) : panels_(panels) {
    for (const StepPanel& panel : panels) longest_ = std::max(longest_, step_length(panel.timeline));
    const Nanos pixel{static_cast<std::int64_t>(static_cast<double>(longest_.value) * kMinBarWidth / kPlot)};
    for (const StepPanel& panel : panels) {
      bars_.push_back(step_bars(panel.timeline, panel.accounting, pixel));
      note_colours(bars_.back());
    }
  }

  std::string paint(const std::string& title) {
    text(kLeft, 16, "t", title);
    y_ = kTitleHeight;
    for (std::size_t i = 0; i < panels_.size(); ++i) paint_panel(i);
    paint_axis();
    paint_legend();
    return head() + body_ + "</svg>\n";
  }

 private:
  void note_colours(const std::vector<RankBars>& ranks) {
    for (const RankBars& rank : ranks) {
      for (const StepBar& bar : rank.compute) has_compute_[bar.colour] = true;
      for (std::size_t kind = 0; kind < rank.transfers.size(); ++kind) {
        has_traffic_[kind] = has_traffic_[kind] || !rank.transfers[kind].empty();
      }
    }
  }

  double x_of(double nanos) const { return kLeft + nanos / static_cast<double>(longest_.value) * kPlot; }

  void text(double x, double y, std::string_view css, std::string_view words) {
    add("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", css, x, y, markup_text(words));
  }

  void paint_panel(std::size_t index) {
    const StepPanel& panel = panels_[index];
    const std::vector<std::size_t> shown = shown_ranks(bars_[index].size());
    text(kLeft, y_ + 15, "h", headline(index, shown.size()));
    y_ += kPanelHead;
    const double top = y_;
    for (const std::size_t rank : shown) {
      text(kLeft - 8, y_ + 12, "r", bars_[index][rank].name);
      paint_rank(bars_[index][rank]);
    }
    const double end = x_of(static_cast<double>(step_length(panel.timeline).value));
    add("<path class=\"e\" d=\"M{:.2f} {:.1f}V{:.1f}\"/>\n", end, top - 3, y_ - kRankGap + 3);
    y_ += kPanelGap;
  }

  std::string headline(std::size_t index, std::size_t shown) const {
    const RankAccount& mean = panels_[index].accounting.mean;
    std::string words =
        fmt::format("{}: {} a step, waits {} for communication", panels_[index].policy,
                    format_time(nanos_from_seconds(mean.step_s)), format_time(nanos_from_seconds(mean.exposed_s)));
    if (index > 0) words += fmt::format("; {:.3f} x as fast", panels_[0].accounting.mean.step_s / mean.step_s);
    if (shown < bars_[index].size()) words += fmt::format(" ({} of {} kinds of ranks)", shown, bars_[index].size());
    return words;
  }

  void paint_rank(const RankBars& rank) {
    paint_lane(rank.compute, kCompute, kComputeHeight);
    for (std::size_t kind = 0; kind < rank.transfers.size(); ++kind) {
      if (has_traffic_[kind]) paint_lane(rank.transfers[kind], kTraffic, kTransferHeight);
    }
    y_ += kRankGap - kLaneGap;
  }

  void paint_lane(const std::vector<StepBar>& bars, std::span<const Colour> colours, double height) {
    const double end = x_of(static_cast<double>(longest_.value));
    add("<path class=\"l\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kLeft, y_ + height, end);
    std::vector<std::string> paths(colours.size());
    for (const StepBar& bar : bars) {
      const double x = x_of(static_cast<double>(bar.begin.value));
      fmt::format_to(std::back_inserter(paths[bar.colour]), "M{:.2f} {:.2f}h{:.2f}v{:.2f}H{:.2f}z", x,
                     y_ + height * (1 - bar.top), x_of(static_cast<double>(bar.end.value)) - x,
                     height * (bar.top - bar.bottom), x);
    }
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (!paths[i].empty()) add("<path class=\"{}\" d=\"{}\"/>\n", colours[i].css, paths[i]);
    }
    y_ += height + kLaneGap;
  }

  void paint_axis() {
    const auto length = static_cast<double>(longest_.value);
    const double tick = round_tick(length, 8);
    const bool in_seconds = length >= 2e9, in_millis = length >= 2e6;
    const double unit = in_seconds ? 1e9 : in_millis ? 1e6 : 1e3;
    add("<path class=\"a\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kLeft, y_, kLeft + kPlot);
    for (double at = 0; at <= length; at += tick) {
      add("<path class=\"a\" d=\"M{:.2f} {:.1f}v4\"/>\n", x_of(at), y_);
      text(x_of(at), y_ + 16, "n", fmt::format("{:g} {}", at / unit, in_seconds ? "s" : in_millis ? "ms" : "us"));
    }
    y_ += kPanelHead + 4;
  }

  void paint_legend() {
    double x = kLeft;
    const auto paint = [&](std::span<const Colour> colours, std::span<const bool> occurs) {
      for (std::size_t i = 0; i < colours.size(); ++i) {
        if (!occurs[i]) continue;
        const double width = 24 + 6.6 * static_cast<double>(colours[i].name.size());
        if (x + width > kWidth) {
          x = kLeft;
          y_ += kLegendLine;
        }
        add("<rect class=\"k {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\"/>\n", colours[i].css, x, y_);
        text(x + 14, y_ + 9, "g", colours[i].name);
        x += width;
      }
    };
    paint(kCompute, has_compute_);
    paint(kTraffic, has_traffic_);
    y_ += kLegendLine;
  }

  std::string head() const {
    std::string css;
    for (const Colour& colour : kCompute) css += fmt::format(".{}{{fill:{}}}", colour.css, colour.fill);
    for (const Colour& colour : kTraffic) css += fmt::format(".{}{{fill:{}}}", colour.css, colour.fill);
    return svg_head(kWidth, y_,
                    "text{font-size:12px;fill:#57606a}.t{font-size:14px}.h{font-size:13px}"
                    ".r{text-anchor:end}.n{text-anchor:middle}.l,.e,.a{stroke:#8b949e;fill:none}"
                    ".l{stroke-width:.4;stroke-opacity:.5}.e{stroke-dasharray:3 2}" +
                        css + "@media (prefers-color-scheme:dark){text{fill:#adb5bf}}");
  }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }

  std::span<const StepPanel> panels_;
  std::vector<std::vector<RankBars>> bars_;  // by panel, by rank
  Nanos longest_{1};
  std::array<bool, kComputeColours> has_compute_{};
  std::array<bool, kTrafficKinds> has_traffic_{};
  double y_ = 0;
  std::string body_;
};

}  // namespace

void write_step_svg(std::ostream& out, const std::string& title, std::span<const StepPanel> panels) {
  WEFT_CHECK(!panels.empty());
  out << StepPainter(panels).paint(title);
}

}  // namespace weft
