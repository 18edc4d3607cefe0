#include "io/figure/timeline_frame.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"

namespace weft {

double TimeFrame::x_of(Nanos time) const {
  const Nanos inside = std::clamp(time, begin, end);
  return left + static_cast<double>((inside - begin).value) / static_cast<double>((end - begin).value) * width;
}

void TimeFrame::draw_heading(FigureSheet& sheet, const PageTimeline& page, const std::string& remark) const {
  const std::string step = format_time(Nanos{std::llround(page.timeline.period_ns)});
  const std::string words = fmt::format("{}: {} a step{}{}", page.title, step, remark.empty() ? "" : "; ", remark);
  sheet.text({left, sheet.top() + 14}, fitted_text(words, kSheetWidth - left - 14));
  sheet.move_down(22);
}

void TimeFrame::draw_name(FigureSheet& sheet, const TimelineRank& rank, double middle) const {
  const std::string name = rank.ranks > 1 ? fmt::format("{} \u00d7{}", rank.name, rank.ranks) : rank.name;
  sheet.text({left - 10, middle + 4}, fitted_text(name, left - 14), {.anchor = TextAnchor::end});
}

TimeFrame first_period(const PageTimeline& page) {
  TimeFrame frame;
  frame.begin = page.begin;
  frame.end = std::min(page.end, page.begin + Nanos{std::max<std::int64_t>(1, std::llround(page.timeline.period_ns))});
  return frame;
}

double weight_of_ranks(const Timeline& timeline) {
  double weight = 0;
  for (const TimelineRank& rank : timeline.ranks) weight += static_cast<double>(rank.ranks);
  return weight;
}

double steps_shown(const PageTimeline& page) {
  return static_cast<double>((page.end - page.begin).value) / page.timeline.period_ns;
}

double exposed_seconds_a_step(const PageTimeline& page) {
  double rank_nanos = 0;
  for (const ExposedStretch& stretch : page.exposed) {
    const TimelineRank& rank = page.timeline.ranks[static_cast<std::size_t>(stretch.rank)];
    rank_nanos += static_cast<double>((stretch.end - stretch.begin).value) * static_cast<double>(rank.ranks);
  }
  return rank_nanos / std::max(1.0, weight_of_ranks(page.timeline)) / steps_shown(page) / 1e9;
}

}  // namespace weft
