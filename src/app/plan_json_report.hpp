// A plan study as the one JSON object that other tools read (keys are stable).
#pragma once

#include <nlohmann/json.hpp>

#include "app/plan_study.hpp"

namespace weft {

nlohmann::ordered_json plan_json_report(const PlanStudy& study);

}  // namespace weft
