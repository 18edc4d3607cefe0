// The files that `weft plan --out` writes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/plan/plan_study.hpp"

namespace weft {

// plan.json, trace.json and, for plans of up to some ten thousand operations, timeline.json of every policy: the best
// one's carry plain names, the others' their own. Returns the names, and in words what was too large to be written.
// Adds the curve of memory over time to the timelines, which the traces show.
std::vector<std::string> write_plan_files(PlanStudy& study, const std::filesystem::path& folder);

// All of these but the plans, for a plan that is a file already.
std::vector<std::string> write_timeline_files(PlanStudy& study, const std::filesystem::path& folder);

// "Written: a b" and its line's end, or nothing.
std::string written_line(const std::vector<std::string>& files);

}  // namespace weft
