// Pictures of timelines as lanes: the step of every rank, the pipeline as papers draw it, the critical path.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "base/error.hpp"
#include "base/text.hpp"
#include "io/figure/figure_sheet.hpp"
#include "io/figure/figure_views.hpp"
#include "io/figure/pipeline_boxes.hpp"
#include "io/figure/timeline_frame.hpp"
#include "io/step_svg.hpp"

namespace weft {
namespace {

constexpr double kLaneHeight = 24, kLaneStep = 28, kNumberSize = 8;

// What the accounting of the picture of a step needs.
Accounting accounting_of(const PageTimeline& page) {
  Accounting accounting;
  accounting.exposed = page.exposed;
  accounting.mean.step_s = page.timeline.period_ns / 1e9;
  accounting.mean.exposed_s = exposed_seconds_a_step(page);
  return accounting;
}

std::string_view colour_of(const PipelineBox& box) {
  switch (box.direction) {
    case PassDirection::forward:
      return figure_colour::kForward;
    case PassDirection::backward:
      return figure_colour::kInputGrad;
    case PassDirection::weights:
      return figure_colour::kWeightGrad;
    case PassDirection::update:
      return figure_colour::kOptimizer;
  }
  WEFT_CHECK(false);
}

// Every second micro-batch is lighter.
std::string lightened(std::string_view colour) {
  std::string light = "#";
  for (const std::size_t at : {1U, 3U, 5U}) {
    const int value = std::stoi(std::string(colour.substr(at, 2)), nullptr, 16);
    light += fmt::format("{:02x}", 255 - (255 - value) * 72 / 100);
  }
  return light;
}

void draw_boxes(FigureSheet& sheet, const TimeFrame& frame, const std::vector<PipelineBox>& boxes) {
  for (const PipelineBox& box : boxes) {
    const double from = frame.x_of(box.begin), to = frame.x_of(box.end);
    if (to <= from) continue;
    const std::string_view colour = colour_of(box);
    const std::string number = box.micro_batch < 0 ? "" : std::to_string(box.micro_batch);
    sheet.box({from, sheet.top(), std::max(0.4, to - from - 0.5), kLaneHeight},
              box.micro_batch % 2 == 1 ? lightened(colour) : std::string(colour));
    if (!number.empty() && text_width(number, kNumberSize) + 0.6 < to - from) {
      sheet.text({(from + to) / 2, sheet.top() + kLaneHeight / 2 + 3}, number,
                 {TextAnchor::middle,
                  box.direction == PassDirection::forward ? figure_colour::kInk : figure_colour::kPaper, kNumberSize});
    }
  }
}

// What a piece of the path is, in the order of a stack.
constexpr std::array<std::string_view, 7> kRibbonColours = {
    figure_colour::kForward,   figure_colour::kInputGrad, figure_colour::kWeightGrad, figure_colour::kRecompute,
    figure_colour::kOptimizer, figure_colour::kCompute,   figure_colour::kExposed};
constexpr std::size_t kRibbonCompute = 5, kRibbonCommunication = 6;

std::size_t ribbon_colour(const Timeline& timeline, const TimelineOperation& operation) {
  constexpr std::array<std::string_view, kRibbonCompute> kPhases = {"forward", "input_grad", "weight_grad", "recompute",
                                                                    "optimizer"};
  if (operation.activity != Activity::compute) return kRibbonCommunication;
  const auto found = std::ranges::find(kPhases, timeline.names[static_cast<std::size_t>(operation.phase)]);
  return static_cast<std::size_t>(found - kPhases.begin());
}

constexpr double kRibbonColumn = 2;  // pixels; pieces that are narrower share a column by their times

// Pixels of each colour in every column of the frame.
using RibbonColumns = std::vector<std::array<double, kRibbonColours.size()>>;

std::vector<RibbonColumns> ribbon_columns(const PageTimeline& page, const TimeFrame& frame) {
  const auto count = static_cast<std::size_t>(std::ceil(frame.width / kRibbonColumn));
  std::vector<RibbonColumns> ranks(page.timeline.ranks.size(), RibbonColumns(count));
  for (const CriticalStep& step : page.path) {
    const TimelineOperation& operation = page.timeline.operations[static_cast<std::size_t>(step.operation)];
    const std::size_t colour = ribbon_colour(page.timeline, operation);
    const double from = (frame.x_of(step.begin) - frame.left) / kRibbonColumn,
                 to = (frame.x_of(step.end) - frame.left) / kRibbonColumn;
    for (auto i = static_cast<std::size_t>(from); i < count && static_cast<double>(i) < to; ++i) {
      const double share = std::min(to, static_cast<double>(i) + 1) - std::max(from, static_cast<double>(i));
      ranks[static_cast<std::size_t>(operation.rank)][i][colour] += share;
    }
  }
  return ranks;
}

// One path for each colour, of boxes whose heights are shares of their columns.
void draw_ribbon_lane(FigureSheet& sheet, const RibbonColumns& columns, FigurePoint corner) {
  for (std::size_t colour = 0; colour < kRibbonColours.size(); ++colour) {
    std::vector<FigureBox> boxes;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (columns[i][colour] <= 0) continue;
      double below = 0;
      for (std::size_t other = 0; other < colour; ++other) below += columns[i][other];
      const double height = kLaneHeight * columns[i][colour], bottom = corner.y + kLaneHeight * (1 - below);
      const double x = corner.x + static_cast<double>(i) * kRibbonColumn;
      FigureBox* last = boxes.empty() ? nullptr : &boxes.back();
      if (last != nullptr && last->x + last->width == x && last->y == bottom - height && last->height == height) {
        last->width += kRibbonColumn;
      } else {
        boxes.push_back({x, bottom - height, kRibbonColumn, height});
      }
    }
    sheet.boxes(boxes, kRibbonColours[colour]);
  }
}

// Thin lines join the lanes where the path changes ranks.
void draw_changes_of_rank(FigureSheet& sheet, const PageTimeline& page, const TimeFrame& frame) {
  const auto rank_of = [&](const CriticalStep& step) {
    return page.timeline.operations[static_cast<std::size_t>(step.operation)].rank;
  };
  const auto middle = [&](std::int32_t rank) { return sheet.top() + rank * kLaneStep + kLaneHeight / 2; };
  for (std::size_t i = 1; i < page.path.size(); ++i) {
    const std::int32_t before = rank_of(page.path[i - 1]), after = rank_of(page.path[i]);
    if (before == after || page.path[i].begin >= frame.end) continue;
    const double x = frame.x_of(page.path[i].begin);
    sheet.line({x, middle(before)}, {x, middle(after)}, figure_colour::kMuted);
  }
}

void draw_ribbon(FigureSheet& sheet, const PageTimeline& page, const TimeFrame& frame) {
  draw_changes_of_rank(sheet, page, frame);
  const std::vector<RibbonColumns> ranks = ribbon_columns(page, frame);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    frame.draw_name(sheet, page.timeline.ranks[i], sheet.top() + kLaneHeight / 2);
    draw_ribbon_lane(sheet, ranks[i], {frame.left, sheet.top()});
    sheet.move_down(kLaneStep);
  }
}

// "compute 16.5 s, TP 0.8 s": what the path consists of.
std::string words_of_path(const PageTimeline& page) {
  Nanos compute;
  EnumArray<TrafficKind, Nanos, kTrafficKinds> transfers{};
  for (const CriticalStep& step : page.path) {
    const TimelineOperation& operation = page.timeline.operations[static_cast<std::size_t>(step.operation)];
    (operation.activity == Activity::compute ? compute : transfers[operation.traffic]) += step.end - step.begin;
  }
  std::string words = "compute " + format_time(compute);
  for (int i = 0; i < kTrafficKinds; ++i) {
    const auto kind = static_cast<TrafficKind>(i);
    if (transfers[kind] > Nanos{}) words += fmt::format(", {} {}", name_of(kind), format_time(transfers[kind]));
  }
  return words;
}

}  // namespace

std::string draw_timeline(const FigureSubject& subject) {
  std::vector<Accounting> accountings;
  std::vector<StepPanel> panels;
  accountings.reserve(subject.timelines.size());
  for (const PageTimeline& page : subject.timelines) {
    accountings.push_back(accounting_of(page));
    panels.push_back({page.title, page.timeline, accountings.back()});
  }
  std::ostringstream out;
  write_step_svg(out, subject.title, panels);
  return std::move(out).str();
}

std::string draw_pipeline(const FigureSubject& subject) {
  FigureSheet sheet(subject.title, "Pipeline: a number is a micro-batch, and every second one is lighter");
  for (const PageTimeline& page : subject.timelines) {
    const TimeFrame frame = first_period(page);
    frame.draw_heading(sheet, page, "");
    const std::vector<std::vector<PipelineBox>> rows = pipeline_boxes(page.timeline);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      frame.draw_name(sheet, page.timeline.ranks[i], sheet.top() + kLaneHeight / 2);
      draw_boxes(sheet, frame, rows[i]);
      sheet.move_down(kLaneStep);
    }
    sheet.time_axis(frame.left, frame.width, frame.end - frame.begin);
  }
  using namespace figure_colour;
  const LegendEntry legend[] = {{std::string(kForward), "forward"},
                                {std::string(kInputGrad), "backward"},
                                {std::string(kWeightGrad), "weight gradients alone"},
                                {std::string(kOptimizer), "update"}};
  sheet.legend(TimeFrame{}.left, legend);
  return sheet.svg();
}

std::string draw_path(const FigureSubject& subject) {
  FigureSheet sheet(subject.title, "Critical path: what decided when the step ended, on the rank that it ran on");
  for (const PageTimeline& page : subject.timelines) {
    if (page.path.empty())
      fail("{}: {} has no critical path: what waits for what is unknown", subject.title, page.title);
    const TimeFrame frame = first_period(page);
    frame.draw_heading(sheet, page, words_of_path(page));
    draw_ribbon(sheet, page, frame);
    sheet.time_axis(frame.left, frame.width, frame.end - frame.begin);
  }
  using namespace figure_colour;
  const LegendEntry legend[] = {{std::string(kForward), "forward"},
                                {std::string(kInputGrad), "input gradient"},
                                {std::string(kWeightGrad), "weight gradient"},
                                {std::string(kRecompute), "recompute"},
                                {std::string(kOptimizer), "optimizer"},
                                {std::string(kExposed), "communication"}};
  sheet.legend(TimeFrame{}.left, legend);
  return sheet.svg();
}

}  // namespace weft
