// The section of `weft analyze` on idle devices: why they were idle, how long launches took, how far ahead the host
// was.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>

#include "study/analyze/analyze_study.hpp"

namespace weft {

// Nothing where no trace has launches: in our own, no host is seen.
void print_device_use(const AnalyzeStudy& study, std::ostream& out);
// Adds "idle", "launches" and "queues" to the entries of "ranks", which must be there.
void add_device_use_json(const AnalyzeStudy& study, nlohmann::ordered_json& json);

}  // namespace weft
