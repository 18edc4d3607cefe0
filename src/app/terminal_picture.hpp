// What only terminals get: a step in block characters, and colours.
#pragma once

#include <string>
#include <string_view>

#include "study/plan/plan_study.hpp"
#include "timeline/accounting.hpp"
#include "timeline/timeline.hpp"

namespace weft {

struct TerminalLook {
  std::size_t columns = 80;
  bool colours = false;  // else characters alone tell what is what
};

// One line for each rank (at most eight, the first and the last among them), a character for each equal share of the
// step: what took most of it. A line below says what the characters mean.
std::string terminal_timeline(const Timeline& timeline, const Accounting& accounting, TerminalLook look);

// The steps of the first policy and of the best one on one scale of time, with headings; nothing where the output is no
// terminal.
std::string terminal_steps(const PlanStudy& study, const std::ostream& out);

// The report with the rows of the best policy in bold and what does not fit in red, where the output is a terminal that
// shows colours.
std::string with_emphasis(std::string report, std::string_view best, const std::ostream& out);

}  // namespace weft
