// The second section of `weft analyze`: which communication is exposed and why, what could hide it and how much that
// would gain, who keeps others waiting, how fast it moves, and the critical path.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>

#include "study/analyze/analyze_why.hpp"

namespace weft {

void print_why(const WhyReport& report, std::ostream& out);
// Adds to the entries of "ranks", which must be there, and "communication", "matching", "critical_path".
void add_why_json(const WhyReport& report, nlohmann::ordered_json& json);
// A Chrome trace: of a file with several labels, of what was measured.
void write_why_trace(const WhyReport& report, std::ostream& out);

}  // namespace weft
