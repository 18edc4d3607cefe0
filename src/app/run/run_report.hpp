// A run for a person at a terminal, and as the JSON object that other tools read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/table.hpp"
#include "study/run/checkpoint_study.hpp"
#include "study/run/run_study.hpp"

namespace weft {

// Why a plan is not run that needs more memory than was stated.
std::string too_large_line(const PolicyStudy& study);
// Tables have at most so many columns.
std::string run_text_report(const RunStudy& study, std::size_t columns = kAnyWidth);
nlohmann::ordered_json run_json_report(const RunStudy& study);
// What the report says of plans that were tried.
nlohmann::ordered_json trials_json(const std::vector<TriedStep>& tried);
// What the report says of the host's time for a step.
nlohmann::ordered_json host_json(const HostReport& report);
// What the report says of checkpoints.
std::string checkpoint_text(const CheckpointStudy& study);
nlohmann::ordered_json checkpoint_json(const CheckpointStudy& study);

}  // namespace weft
