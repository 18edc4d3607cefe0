// A timeline as the report page draws it: the spans that touch one window of time, what was exposed in it and the
// critical path through it, written as columns of small numbers, which compress to about eight bytes a span.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "timeline/accounting.hpp"
#include "timeline/critical_path.hpp"
#include "timeline/timeline.hpp"

namespace weft {

struct PageTimeline {
  std::string title;   // "megatron, predicted"
  std::string policy;  // "" of a trace from elsewhere
  Timeline timeline;   // nothing is folded; holds no span outside the window and no operation without a span
  std::vector<ExposedStretch> exposed;
  std::vector<CriticalStep> path;
  Nanos begin, end;           // the window
  Nanos whole_end;            // where the window would end if the page held all spans
  std::int64_t left_out = 0;  // spans between `end` and `whole_end`
};

struct PageWindow {
  std::int32_t max_periods = 3;           // steps that are drawn
  std::int64_t max_spans = 250'000;       // the window ends earlier where it would hold more
  std::int64_t max_memory_points = 1500;  // of a rank
};

// Takes what lies in the first periods of the steady state. The timeline must pass check_timeline; exposed stretches
// and path are those of the timeline, with its numbers.
PageTimeline page_timeline(const Timeline& timeline, const std::vector<ExposedStretch>& exposed,
                           const std::vector<CriticalStep>& path, const PageWindow& window = {});
// The same with the critical path that the dependencies give, where they are known.
PageTimeline page_timeline(const Timeline& timeline, const Accounting& accounting, const PageWindow& window = {});

// One JSON object; docs/report.md has its keys. Times count from the window's begin.
void write_page_timeline(std::ostream& out, const PageTimeline& page);

// Reads that object. Throws Error, which begins with `name`, where it cannot be one. Which ends of messages receive is
// not known afterwards.
PageTimeline read_page_timeline(const std::string& text, const std::string& name);

}  // namespace weft
