// A plan study for a person at a terminal.
#pragma once

#include <string>

#include "app/plan_study.hpp"

namespace weft {

// Its first two lines: model, cluster, layout.
std::string study_heading(const PlanStudy& study);
std::string plan_text_report(const PlanStudy& study);

}  // namespace weft
