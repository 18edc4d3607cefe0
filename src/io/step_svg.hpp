// A picture of a training step as SVG: for each plan one panel, for each rank a lane of computation and one lane for
// every kind of communication. Panels share one scale of time, so that the faster plan is the shorter one.
#pragma once

#include <ostream>
#include <span>
#include <string>

#include "timeline/accounting.hpp"
#include "timeline/timeline.hpp"

namespace weft {

struct StepPanel {
  std::string policy;
  const Timeline& timeline;
  const Accounting& accounting;  // of this timeline
};

// Needs at least one panel. A panel shows at most eight ranks, the first and the last among them.
void write_step_svg(std::ostream& out, const std::string& title, std::span<const StepPanel> panels);

}  // namespace weft
