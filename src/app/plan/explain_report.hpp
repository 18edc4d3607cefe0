// An explanation in words and tables, and as JSON (docs/explain.md has the keys).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/plan/plan_explanation.hpp"

namespace weft {

// No line is longer than 100 columns.
std::string explanation_text(const PolicyStudy& study, const PlanExplanation& explanation);
nlohmann::ordered_json explanation_json(const PolicyStudy& study, const PlanExplanation& explanation);

}  // namespace weft
