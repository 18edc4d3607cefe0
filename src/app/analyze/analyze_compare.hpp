// The third section of `weft analyze`: two sets of traces side by side, operation by operation.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "app/analyze/analyze_why.hpp"

namespace weft {

struct TraceComparison {
  std::string before_name, after_name;  // "before", "after"; "predicted", "measured"
  TraceTotals before, after;
  std::vector<OperationChange> changes;
};

TraceComparison compare_reports(const WhyReport& before, const WhyReport& after);
// Of a file that has both: what was predicted against what was measured. Nothing where there is only one label.
std::optional<TraceComparison> compare_labels(const WhyReport& report);

void print_comparison(const TraceComparison& comparison, std::ostream& out);
// Adds "comparison".
void add_comparison_json(const TraceComparison& comparison, nlohmann::ordered_json& json);

}  // namespace weft
