// What `weft run --out` leaves behind: plans, measured timelines, traces of prediction and measurement.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/run/run_study.hpp"

namespace weft {

// At most so many steps in a file: later ones look the same.
inline constexpr std::int32_t kStepsInFiles = 3;

// plan.json, timeline.json (measured) and trace.json (predicted and measured side by side) of every policy: the best
// one's carry plain names, the others' their own. Returns the names.
std::vector<std::string> write_run_files(const RunStudy& study, const std::filesystem::path& folder);

}  // namespace weft
