// What `weft analyze` opens with: what cost the most time, in words, and what to do about it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <vector>

#include "study/analyze/analyze_verdict.hpp"

namespace weft {

void print_verdicts(const std::vector<Verdict>& verdicts, std::ostream& out);
// Adds "verdicts".
void add_verdicts_json(const std::vector<Verdict>& verdicts, nlohmann::ordered_json& json);

}  // namespace weft
