// A run for a person at a terminal, and as the JSON object that other tools read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/run/run_study.hpp"

namespace weft {

std::string run_text_report(const RunStudy& study);
nlohmann::ordered_json run_json_report(const RunStudy& study);

}  // namespace weft
