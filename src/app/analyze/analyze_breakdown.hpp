// The first section of `weft analyze`: what Holistic Trace Analysis prints, in a table, as JSON and as CSV.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>

#include "study/analyze/analyze_study.hpp"

namespace weft {

void print_breakdown(const AnalyzeStudy& study, std::ostream& out);
// Adds "ranks" and "kernel_types".
void add_breakdown_json(const AnalyzeStudy& study, nlohmann::ordered_json& json);
// A row per rank and kernel name: count, total, mean, shortest, longest.
void write_kernels_csv(const AnalyzeStudy& study, std::ostream& out);

}  // namespace weft
