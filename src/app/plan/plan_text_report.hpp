// A plan study for a person at a terminal.
#pragma once

#include <string>

#include "base/table.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {

// Its first two lines: model, cluster, layout. `links`: and whether those are emulated.
std::string study_heading(const PlanStudy& study, bool links = true);
// Of a plan that does not fit: what is too large.
std::string does_not_fit_line(const PolicyStudy& study);
// Policies without a plan, and why; nothing where all have one.
std::string failed_lines(const PlanStudy& study);
// Layouts that fit, as a table of at most 100 columns; that none does; or nothing where nobody looked.
std::string would_fit_text(const FittingLayouts& fitting);
// Tables have at most so many columns.
std::string plan_text_report(const PlanStudy& study, std::size_t columns = kAnyWidth);

}  // namespace weft
