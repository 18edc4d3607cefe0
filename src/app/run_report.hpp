// A run for a person at a terminal, and as the JSON object and the files that other tools read.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/run_study.hpp"

namespace weft {

std::string run_text_report(const RunStudy& study);
nlohmann::ordered_json run_json_report(const RunStudy& study);
// plan.json, timeline.json and trace.json (predicted and measured) of every policy: the best one's carry plain names,
// the others' their own. Returns the names.
std::vector<std::string> write_run_files(const RunStudy& study, const std::filesystem::path& folder);

}  // namespace weft
