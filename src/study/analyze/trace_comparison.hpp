// Two sets of traces side by side, operation by operation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/analyze/analyze_why.hpp"

namespace weft {

struct TraceComparison {
  std::string before_name, after_name;  // "before", "after"; "predicted", "measured"
  TraceTotals before, after;
  std::vector<OperationChange> changes;
};

TraceComparison compare_reports(const WhyReport& before, const WhyReport& after);
// Compares what was predicted with what was measured, for a file that has both. Nothing where it has only one label.
std::optional<TraceComparison> compare_labels(const WhyReport& report);

}  // namespace weft
