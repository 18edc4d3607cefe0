// The range of time that a figure of a timeline shows, and where it lies on the sheet.
#pragma once

#include <string>

#include "io/figure/figure_sheet.hpp"
#include "io/report/page_timeline.hpp"

namespace weft {

struct TimeFrame {
  Nanos begin, end;
  double left = 100, width = kSheetWidth - 100 - 24;

  // Times outside of the range lie on its edges.
  double x_of(Nanos time) const;
  // `remark` may be empty.
  void draw_heading(FigureSheet& sheet, const PageTimeline& page, const std::string& remark) const;
  // Left of the frame, at this height.
  void draw_name(FigureSheet& sheet, const TimelineRank& rank, double middle) const;
};

// One step, or less where the page holds less.
TimeFrame first_period(const PageTimeline& page);

// Of a mean rank.
double exposed_seconds_a_step(const PageTimeline& page);

// How many ranks the timeline's ranks stand for.
double weight_of_ranks(const Timeline& timeline);
// How many steps the window shows.
double steps_shown(const PageTimeline& page);

}  // namespace weft
