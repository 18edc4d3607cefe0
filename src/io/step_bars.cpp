#include "io/step_bars.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

Nanos length(const StepBar& bar) {
  return bar.end - bar.begin;
}

ComputeColour colour_of(std::string_view phase) {
  if (phase == "forward") return ComputeColour::forward;
  if (phase == "optimizer") return ComputeColour::optimizer;
  const bool backward = phase == "input_grad" || phase == "weight_grad" || phase == "recompute";
  return backward ? ComputeColour::backward : ComputeColour::other;
}

// Returns the bars in the order of time, none overlapping another. Bars of one colour that touch or overlap are joined;
// where two colours overlap, the later bar is cut.
std::vector<StepBar> joined(std::vector<StepBar> bars) {
  std::ranges::sort(bars, {}, [](const StepBar& bar) { return std::pair(bar.begin, bar.end); });
  std::vector<StepBar> result;
  for (StepBar bar : bars) {
    if (!result.empty()) {
      StepBar& last = result.back();
      if (bar.colour == last.colour && bar.begin <= last.end) {
        last.end = std::max(last.end, bar.end);
        continue;
      }
      bar.begin = std::max(bar.begin, last.end);
    }
    if (bar.begin < bar.end) result.push_back(bar);
  }
  return result;
}

// Adds one bar for every colour of the group, as high as the colour's share of the time up to `end`.
void add_stack(std::vector<StepBar>& bars, std::span<const StepBar> group, Nanos end) {
  if (group.size() < 2) {
    bars.insert(bars.end(), group.begin(), group.end());
    return;
  }
  const Nanos begin = group.front().begin;
  std::array<Nanos, std::max(kComputeColours, kTrafficKinds)> time{};
  for (const StepBar& bar : group) time[at(bar.colour)] += length(bar);
  double bottom = 0;
  for (std::size_t colour = 0; colour < time.size(); ++colour) {
    if (time[colour] == Nanos{}) continue;
    const double top = bottom + static_cast<double>(time[colour].value) / static_cast<double>((end - begin).value);
    bars.push_back({static_cast<std::int32_t>(colour), begin, end, bottom, top});
    bottom = top;
  }
}

std::vector<StepBar> stacked(const std::vector<StepBar>& bars, Nanos pixel) {
  std::vector<StepBar> result;
  std::size_t first = 0;  // of the group that is not yet drawn
  const auto draw_group = [&](std::size_t next) {
    if (first == next) return;
    const Nanos end = bars[next - 1].end;
    const bool reaches_next = next < bars.size() && bars[next].begin - end < pixel;
    add_stack(result, std::span(bars).subspan(first, next - first), reaches_next ? bars[next].begin : end);
    first = next;
  };
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const bool is_long = length(bars[i]) >= pixel;
    if (is_long || bars[i].begin - bars[first].begin >= pixel) draw_group(i);
    if (is_long) draw_group(i + 1);
  }
  draw_group(bars.size());
  return result;
}

}  // namespace

Nanos step_length(const Timeline& timeline) {
  return {std::llround(timeline.period_ns)};
}

std::vector<RankBars> step_bars(const Timeline& timeline, const Accounting& accounting, Nanos pixel) {
  std::vector<RankBars> ranks(timeline.ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].name = timeline.ranks[i].name;
  const auto add = [&](std::vector<StepBar>& bars, std::int32_t colour, Nanos begin, Nanos end) {
    begin = std::max(begin - timeline.steady_begin, Nanos{});
    end = std::min(end - timeline.steady_begin, step_length(timeline));
    if (begin < end) bars.push_back({colour, begin, end});
  };
  // Operations of the iterations before and after reach into the period.
  const Timeline spans = expanded(timeline, timeline.steady_first - 1, timeline.steady_first + timeline.periods);
  for (const Span& span : spans.spans) {
    const TimelineOperation& operation = timeline.operations[at(span.operation)];
    RankBars& rank = ranks[at(operation.rank)];
    if (operation.activity == Activity::compute) {
      const ComputeColour colour = colour_of(timeline.names[at(operation.phase)]);
      add(rank.compute, static_cast<std::int32_t>(colour), span.start, span.end);
    } else {
      const auto kind = static_cast<std::int32_t>(operation.traffic);
      add(rank.transfers[at(kind)], kind, span.start, span.end);
    }
  }
  for (const ExposedStretch& stretch : accounting.exposed) {
    add(ranks[at(stretch.rank)].compute, static_cast<std::int32_t>(ComputeColour::waiting), stretch.begin, stretch.end);
  }
  for (RankBars& rank : ranks) {
    rank.compute = stacked(joined(std::move(rank.compute)), pixel);
    for (std::vector<StepBar>& bars : rank.transfers) bars = stacked(joined(std::move(bars)), pixel);
  }
  return ranks;
}

}  // namespace weft
