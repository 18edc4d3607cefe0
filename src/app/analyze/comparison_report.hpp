// The third section of `weft analyze`: what changed between two sets of traces.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>

#include "study/analyze/trace_comparison.hpp"

namespace weft {

void print_comparison(const TraceComparison& comparison, std::ostream& out);
// Adds "comparison".
void add_comparison_json(const TraceComparison& comparison, nlohmann::ordered_json& json);

}  // namespace weft
