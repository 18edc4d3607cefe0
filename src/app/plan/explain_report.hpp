// An explanation in words and tables, and as JSON (docs/explain.md has the keys).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/table.hpp"
#include "study/plan/plan_explanation.hpp"

namespace weft {

// One screen of at most 100 columns, in place of plan_text_report: the policies side by side, what is exposed in the
// plan of the explained one (study.policies[explained]), why, and what to do, best first.
// Tables have at most so many columns.
std::string explanation_screen(const PlanStudy& study, std::size_t explained, const PlanExplanation& explanation,
                               std::size_t columns = kAnyWidth);
// Every communication of one policy with what hides it; no line is longer than 100 columns.
std::string explanation_text(const PolicyStudy& study, const PlanExplanation& explanation,
                             std::size_t columns = kAnyWidth);
nlohmann::ordered_json explanation_json(const PolicyStudy& study, const PlanExplanation& explanation);

}  // namespace weft
